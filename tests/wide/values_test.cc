// What C++ makes of a golden's recipes is what Python made of them.

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "wide/wide_golden.h"

namespace motley::wide_tests {
namespace {

class WideValues : public testing::TestWithParam<std::string> {};

std::vector<std::byte> made(const Recipe& recipe, std::uint64_t key) {
  std::vector<std::byte> tensor(static_cast<std::size_t>(recipe.bytes()));
  fill(recipe, key, 0, recipe.elements(), tensor.data());
  return tensor;
}

void expect_checksums(const Files& files) {
  for (const Recipe& recipe : files.tensors) {
    if (recipe.checksums.empty()) continue;
    const std::vector<std::string> names = recipe.names();
    ASSERT_EQ(recipe.checksums.size(), 2U) << recipe.name;
    for (std::size_t end = 0; end < std::min<std::size_t>(names.size(), 2); ++end) {
      const std::string& name = end == 0 ? names.front() : names.back();
      EXPECT_EQ(checksum(made(recipe, files.key(name)), recipe.dtype), recipe.checksums[end])
          << name;
    }
  }
}

TEST_P(WideValues, AreTheSameInPython) {
  const WideGolden golden(GetParam());
  expect_checksums(golden.checkpoint);
  for (const auto& [name, files] : golden.adapters) expect_checksums(files);
}

INSTANTIATE_TEST_SUITE_P(Models, WideValues, testing::ValuesIn(wide_models()),
                         [](const auto& model) { return model.param; });

TEST(WideRecipe, PartsOfATensorAreThoseOfTheWhole) {
  const Recipe recipe{.name = "weight",
                      .dtype = DType::bf16,
                      .shape = tensor::Shape::make(std::vector<std::int64_t>{7, 11}).value(),
                      .offset = 1000,
                      .scale = 1e-5F};
  const std::uint64_t key = key_of("seed/weight");
  const std::vector<std::byte> whole = made(recipe, key);
  std::vector<std::byte> parts(whole.size());
  fill(recipe, key, 0, 30, parts.data());
  fill(recipe, key, 30, 47, parts.data() + 60);
  EXPECT_EQ(parts, whole);
}

TEST(WideRecipe, NamesRunThroughTheirRangesTheLastOneFastest) {
  const Recipe recipe{.name = "layers.{}.experts.{}.weight", .ranges = {{1, 3}, {0, 2}}};
  EXPECT_EQ(recipe.names(),
            (std::vector<std::string>{"layers.1.experts.0.weight", "layers.1.experts.1.weight",
                                      "layers.2.experts.0.weight", "layers.2.experts.1.weight"}));
}

}  // namespace
}  // namespace motley::wide_tests
