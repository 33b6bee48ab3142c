#include "model/weights/cut_weight.h"

#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "quant/formats.h"
#include "quant/test_weights.h"
#include "tensor/device/cpu_device.h"

namespace motley::model {
namespace {

constexpr std::int64_t rows = 5;
constexpr std::int64_t inputs = 264;

std::vector<float> decoded(const quant::Weight& weight) {
  std::vector<float> numbers(static_cast<std::size_t>(weight.out() * weight.in()));
  weight.decode(0, weight.out(), numbers.data());
  return numbers;
}

// Of the rows and inputs of the cut.
std::vector<float> numbers_of(const std::vector<float>& whole, const Cut& cut) {
  std::vector<float> numbers;
  for (const dist::Range& part : cut.rows->parts()) {
    for (std::int64_t row = part.begin; row < part.end; ++row) {
      for (std::int64_t k = cut.columns->begin; k < cut.columns->end; ++k)
        numbers.push_back(whole[static_cast<std::size_t>(row * inputs + k)]);
    }
  }
  return numbers;
}

TEST(CutWeight, PartsMeanWhatTheWholeMeans) {
  tensor::CpuDevice device({.threads = 1});
  std::mt19937 random(1);
  std::vector<float> wanted(static_cast<std::size_t>(rows * inputs));
  for (float& number : wanted) number = std::normal_distribution<float>(0, 1)(random);
  for (const quant::KnownFormat& known : quant::known_formats()) {
    if (known.format.scales == quant::Format::Scales::none) continue;
    quant::TestPacker packer(known.format, {rows, inputs}, device, random);
    const quant::Weight whole = packer.pack(wanted).weight;
    const std::vector<float> meaning = decoded(whole);
    // Whole blocks, parts of them, and parts that begin and end between any.
    for (const auto& columns : {dist::Range{0, inputs}, dist::Range{0, 128},
                                dist::Range{128, inputs}, dist::Range{64, 160}, dist::Range{8, 20},
                                dist::Range{100, 102}, dist::Range{20, 255}, dist::Range{21, 40}}) {
      const Cut cut{.rows = dist::Range{1, 4}, .columns = columns};
      const auto part = cut_weight(whole, cut, "m", device, false);
      const auto where = testing::Message() << to_string(known.format) << ", inputs "
                                            << columns.begin << " to " << columns.end;
      // Without groups that could be filled up a part must begin with a whole byte, and blocks of
      // rounded inputs with a whole block.
      if (!part.ok()) {
        EXPECT_NE(part.error().message().find("can't be cut over ranks"), std::string::npos);
        EXPECT_NE(known.format.scales, quant::Format::Scales::group) << where;
        EXPECT_TRUE(columns.begin * known.format.bits % 8 != 0) << where;
        continue;
      }
      EXPECT_EQ(part->in(), columns.size()) << where;
      EXPECT_EQ(decoded(*part), numbers_of(meaning, cut)) << where;
    }
  }
}

// Of a projection to queries, keys and values a rank has rows in several places. Blocks of rows
// become as small as the places ask for.
TEST(CutWeight, RowsMayLieInSeveralPlaces) {
  tensor::CpuDevice device({.threads = 1});
  std::mt19937 random(4);
  constexpr std::int64_t all = 288;
  std::vector<float> wanted(static_cast<std::size_t>(all * inputs));
  for (float& number : wanted) number = std::normal_distribution<float>(0, 1)(random);
  dist::Ranges own;
  for (const dist::Range& part : {dist::Range{32, 64}, dist::Range{96, 128}, dist::Range{160, 171}})
    own.add(part);
  for (const quant::KnownFormat& known : quant::known_formats()) {
    if (known.format.scales == quant::Format::Scales::none) continue;
    quant::TestPacker packer(known.format, {all, inputs}, device, random);
    const quant::Weight whole = packer.pack(wanted).weight;
    for (const dist::Range& columns : {dist::Range{0, inputs}, dist::Range{128, inputs}}) {
      const Cut cut{.rows = own, .columns = columns};
      const auto part = cut_weight(whole, cut, "m", device, false);
      ASSERT_TRUE(part.ok()) << part.error().message();
      EXPECT_EQ(decoded(*part), numbers_of(decoded(whole), cut)) << to_string(known.format);
    }
  }
}

// Experts of a layer have as many columns, however their groups' inputs are spread.
TEST(CutWeight, PartsInActivationOrderHaveAsManyColumns) {
  tensor::CpuDevice device({.threads = 1});
  std::mt19937 random(2);
  quant::Format format{.element = DType::i8,
                       .bits = 4,
                       .scales = quant::Format::Scales::group,
                       .block_columns = 128,
                       .scale_type = DType::bf16,
                       .input_order = true};
  for (int expert = 0; expert < 20; ++expert) {
    quant::TestPacker packer(format, {1, 768}, device, random);
    const quant::Weight whole = packer.pack(std::vector<float>(768, 0.5F)).weight;
    const auto part = cut_weight(whole, {.columns = dist::Range{384, 768}}, "m", device, false);
    EXPECT_EQ(part.value().columns(), 544);
    EXPECT_EQ(part.value().format().block_columns, 32);
  }
  // Of groups no larger than a block no more are needed than the whole has; and readers drop an
  // order that changes nothing.
  format.block_columns = 32;
  for (const bool sorted : {false, true}) {
    format.input_order = !sorted;
    quant::TestPacker packer(format, {1, 768}, device, random);
    const quant::Weight whole = packer.pack(std::vector<float>(768, 0.5F)).weight;
    const auto part = cut_weight(whole, {.columns = dist::Range{384, 768}}, "m", device, true);
    EXPECT_EQ(part.value().columns(), 768);
    EXPECT_TRUE(part.value().format().input_order);
  }
}

// Of whole rows an order says nothing, whatever their scheme has.
TEST(CutWeight, RowsWithOneScaleStayAsTheyAre) {
  tensor::CpuDevice device({.threads = 1});
  std::mt19937 random(3);
  const quant::Format format{.element = DType::i8,
                             .bits = 4,
                             .scales = quant::Format::Scales::channel,
                             .scale_type = DType::bf16};
  quant::TestPacker packer(format, {2, 64}, device, random);
  const quant::Weight whole = packer.pack(std::vector<float>(128, 0.5F)).weight;
  const auto part = cut_weight(whole, {.columns = dist::Range{32, 64}}, "m", device, true);
  EXPECT_EQ(part.value().columns(), 32);
  EXPECT_EQ(part.value().format(), format);
}

}  // namespace
}  // namespace motley::model
