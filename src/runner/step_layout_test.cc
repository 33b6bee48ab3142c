#include "runner/step_layout.h"

#include <vector>

#include <gtest/gtest.h>

#include "model/latent_attention.h"
#include "tensor/device/cpu_device.h"

namespace motley::runner {
namespace {

struct Asked {
  std::int64_t cached = 0;
  std::int64_t rows = 1;
};

// The sequences of a step in second form, [first, end), and their positions.
struct Found {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t positions = 0;
  friend bool operator==(const Found&, const Found&) = default;
};

class SecondForm : public testing::Test {
 protected:
  Found of(const std::vector<Asked>& asked, std::int64_t room = 20000) {
    StepLayout layout = StepLayout::create(device_, {.rows = 4096,
                                                     .sequences = 8,
                                                     .tokens = 8192,
                                                     .second_form = &attention_,
                                                     .positions = room})
                            .value();
    const std::vector<std::int32_t> tokens(4096);
    const std::vector<std::int32_t> pages(8192 / KvMemory::page_tokens);
    std::vector<Chunk> chunks;
    for (const auto& [cached, rows] : asked)
      chunks.push_back({.pages = pages,
                        .length = cached,
                        .tokens = std::span(tokens).first(static_cast<std::size_t>(rows))});
    layout.build(chunks);
    std::int64_t row = 0;
    std::int64_t sequence = 0;
    Found found;
    for (const model::StepPart& part : layout.parts()) {
      EXPECT_EQ(part.first_row, row);
      EXPECT_EQ(part.first_sequence, sequence);
      row += part.rows;
      sequence += part.sequences;
      if (part.positions > 0)
        found = {.begin = part.first_sequence, .end = sequence, .positions = part.positions};
    }
    if (!layout.parts().empty()) {
      EXPECT_EQ(row, layout.rows());
      EXPECT_EQ(sequence, layout.sequences());
    }
    return found;
  }

 private:
  model::LatentAttention attention_;
  tensor::CpuDevice device_{{.threads = 1}};
};

TEST_F(SecondForm, IsForPromptsAndNotForRowsThatDecode) {
  EXPECT_EQ(of({{0, 100}, {0, 700}}), (Found{0, 2, 800}));
  EXPECT_EQ(of({{100, 1}, {900, 1}, {0, 5}, {0, 700}}), (Found{2, 4, 705}));
  EXPECT_EQ(of({{100, 1}, {3, 1}}), Found());
}

TEST_F(SecondForm, WeighsRowsAgainstCachedPositions) {
  EXPECT_EQ(of({{4000, 512}}), (Found{0, 1, 4512}));
  EXPECT_EQ(of({{4000, 40}}), Found());
  // Sequences of few rows are included between sequences of many, but not at an end.
  EXPECT_EQ(of({{0, 512}, {500, 16}, {0, 512}}), (Found{0, 3, 1540}));
  EXPECT_EQ(of({{0, 512}, {2000, 16}}), (Found{0, 1, 512}));
}

TEST_F(SecondForm, KeepsToItsRoom) {
  EXPECT_EQ(of({{0, 512}, {2000, 512}, {0, 400}}, 1000), (Found{0, 1, 512}));
  EXPECT_EQ(of({{0, 300}, {0, 400}, {0, 500}}, 1000), (Found{1, 3, 900}));
  EXPECT_EQ(of({{0, 300}}, 0), Found());
}

}  // namespace
}  // namespace motley::runner
