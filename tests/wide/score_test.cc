// Models of production widths against Hugging Face and PEFT.

#include "runner/score.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/temporary_folder.h"
#include "lora/load.h"
#include "lora/pool.h"
#include "model/model.h"
#include "runner/runner.h"
#include "score/golden_model.h"
#include "tensor/device.h"
#include "wide/wide_golden.h"

namespace motley::wide_tests {
namespace {

namespace fs = std::filesystem;
using score_tests::at;

const tensor::DeviceChoice device_choice = tensor::parse_device(MOTLEY_WIDE_DEVICE).value();

// Writing takes seconds, so a process does it once for each model.
const fs::path& files_of(const WideGolden& golden) {
  static std::map<fs::path, std::unique_ptr<TemporaryFolder>> written;
  std::unique_ptr<TemporaryFolder>& folder = written[golden.folder];
  if (folder == nullptr) {
    folder = std::make_unique<TemporaryFolder>();
    ThreadPool threads;
    golden.write(folder->path(), threads);
  }
  return folder->path();
}

struct Distance {
  double largest = 0;
  double sum = 0;
  std::int64_t count = 0;

  void add(const runner::ScoreLine& line, const runner::ScoreResult& result) {
    for (std::size_t t = 1; t < line.tokens.size(); ++t) {
      const double apart = std::abs(double{result.token_logprobs[t]} - (*line.reference)[t]);
      // NaN is far from everything.
      largest = std::isnan(apart) ? INFINITY : std::max(largest, apart);
      sum += apart;
      ++count;
    }
  }
  void add(const Distance& other) {
    largest = std::max(largest, other.largest);
    sum += other.sum;
    count += other.count;
  }
  double mean() const { return count == 0 ? 0 : sum / static_cast<double>(count); }
};

// By adapter; "base" has none.
using Distances = std::map<std::string, Distance>;

Distance all_of(const Distances& distances) {
  Distance all;
  for (const auto& [name, distance] : distances) all.add(distance);
  return all;
}

struct Adapters {
  std::unique_ptr<lora::Pool> pool;
  std::map<std::string, lora::Mix> mixes;
};

Adapters load_adapters(const WideGolden& golden, const model::Model& model, tensor::Device& device,
                       std::optional<DType> factors) {
  lora::Pool::Options options{.dtype = factors.value_or(model.activations()),
                              .experts = model.factor_layout(),
                              .directory = device.id().kind != tensor::DeviceKind::cpu};
  std::map<std::string, lora::Adapter> loaded;
  std::uint64_t pages = 0;
  for (const auto& [name, files] : golden.adapters) {
    loaded[name] =
        lora::load_adapter(files_of(golden) / "adapters" / name, {}, model.base_view()).value();
    pages += lora::Pool::pages_of(loaded[name], options);
  }
  options.bytes = pages * options.page_bytes;
  Adapters adapters{.pool = lora::Pool::create(device, options).value(),
                    .mixes = {{"base", lora::Mix()}}};
  for (const auto& [name, adapter] : loaded) {
    const std::array part{
        lora::Mix::Part{.adapter = adapters.pool->load(name, adapter).value(), .scale = 1}};
    adapters.mixes[name] = lora::Mix::make(part).value();
  }
  return adapters;
}

std::string label_of(const runner::ScoreLine& line) {
  return line.adapters.empty() ? "base" : line.adapters.front().name;
}

// All lines as one mixed batch.
Distances distances(const WideGolden& golden, bool exact, std::optional<DType> factors = {}) {
  const auto device = tensor::open_device(device_choice).value();
  const auto model =
      model::Model::load(files_of(golden), *device, {.exact = exact, .factors = factors}).value();
  Adapters adapters = load_adapters(golden, *model, *device, factors);
  std::vector<std::string> names;
  for (const auto& [name, files] : golden.adapters) names.push_back(name);
  const std::vector<runner::ScoreLine> lines =
      runner::read_score_lines(golden.folder / "lines.jsonl",
                               {.vocabulary = model->config().vocabulary, .adapters = names})
          .value();
  std::vector<lora::Mix> mixes;
  std::int64_t longest = 0;
  std::int64_t pages = 0;
  for (const runner::ScoreLine& line : lines) {
    mixes.push_back(adapters.mixes.at(label_of(line)));
    const auto tokens = static_cast<std::int64_t>(line.tokens.size());
    longest = std::max(longest, tokens);
    pages += runner::KvMemory::pages_for(tokens);
  }
  const auto runner = runner::Runner::create(*model, *device,
                                             {.max_rows = 512,
                                              .max_sequences = 32,
                                              .max_tokens = longest,
                                              .pages = pages,
                                              .adapters = adapters.pool.get(),
                                              .adapter_rank = 48,
                                              .mix_rank = 48})
                          .value();
  const auto results = runner::score(*runner, lines, mixes, {.top = 0}).value();
  Distances found;
  for (std::size_t i = 0; i < lines.size(); ++i)
    found[label_of(lines[i])].add(lines[i], results[i]);
  return found;
}

// What Hugging Face's own run in bf16 differs from its float32, in the mean.
double reference_error(const WideGolden& golden, const std::string& label) {
  return at(at(golden.golden, "bf16_mean_error"), label).as_number("error").value();
}

// For the record of a session on a GPU.
void print(const WideGolden& golden, const char* what, const Distances& distances) {
  for (const auto& [label, distance] : distances)
    std::printf("wide %s %s %s %s mean %.6f largest %.6f huggingface_bf16 %.6f\n",
                MOTLEY_WIDE_DEVICE, golden.folder.filename().c_str(), what, label.c_str(),
                distance.mean(), distance.largest, reference_error(golden, label));
  const Distance all = all_of(distances);
  std::printf("wide %s %s %s all mean %.6f largest %.6f huggingface_bf16 %.6f\n",
              MOTLEY_WIDE_DEVICE, golden.folder.filename().c_str(), what, all.mean(), all.largest,
              reference_error(golden, "all"));
}

class WideScore : public testing::TestWithParam<std::string> {};

TEST_P(WideScore, EqualsTheReferenceInFloat32) {
  const WideGolden golden(GetParam());
  const Distances found = distances(golden, true);
  print(golden, "f32", found);
  const double tolerance = at(golden.golden, "tolerance").as_number("tolerance").value();
  for (const auto& [label, distance] : found) EXPECT_LE(distance.largest, tolerance) << label;
}

TEST_P(WideScore, IsAsCloseInBf16AsHuggingFace) {
  const WideGolden golden(GetParam());
  const Distances found = distances(golden, false);
  print(golden, "bf16", found);
  EXPECT_LE(all_of(found).mean(), 1.15 * reference_error(golden, "all"));
}

// Factors of 8 bits round two to three times as much as all of bf16 does; a broken one is as far
// away as the base is.
TEST_P(WideScore, StaysCloseWithFp8Pages) {
  const WideGolden golden(GetParam());
  const Distances found = distances(golden, false, DType::f8_e4m3);
  print(golden, "fp8_pages", found);
  for (const auto& [label, distance] : found) {
    if (label == "base") continue;
    const double moved = at(at(golden.golden, "moves"), label).as_number("moves").value();
    EXPECT_LE(distance.mean(), moved / 4) << label;
  }
}

// What the build names, else all.
std::vector<std::string> models() {
  const std::string one = MOTLEY_WIDE_MODEL;
  return one.empty() ? wide_models() : std::vector{one};
}

INSTANTIATE_TEST_SUITE_P(Models, WideScore, testing::ValuesIn(models()),
                         [](const auto& model) { return model.param; });

}  // namespace
}  // namespace motley::wide_tests
