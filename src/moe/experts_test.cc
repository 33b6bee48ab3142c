#include "moe/experts.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace motley::moe {
namespace {

using testing::HasSubstr;

// Two experts of hidden size 4 and intermediate size 3, all numbers zero.
ExpertWeights small() {
  static const std::vector<float> zeros(16);
  const auto matrix = [](std::int64_t out, std::int64_t in) {
    return quant::Weight::borrow(tensor::ConstTensor(
        reinterpret_cast<const std::byte*>(zeros.data()), DType::f32, {out, in}));
  };
  ExpertWeights weights;
  weights.experts = 2;
  weights.hidden = 4;
  weights.intermediate = 3;
  for (int expert = 0; expert < 2; ++expert) {
    weights.gate.push_back(matrix(3, 4));
    weights.up.push_back(matrix(3, 4));
    weights.down.push_back(matrix(4, 3));
  }
  return weights;
}

quant::Weight bf16_matrix(std::int64_t out, std::int64_t in) {
  static const std::vector<std::uint16_t> zeros(16);
  return quant::Weight::borrow(tensor::ConstTensor(reinterpret_cast<const std::byte*>(zeros.data()),
                                                   DType::bf16, {out, in}));
}

std::string reason(const ExpertWeights& weights) {
  const auto result = validate(weights);
  return result.ok() ? "" : result.error().message();
}

TEST(ExpertWeights, TakesALayerWithAndWithoutBiases) {
  ExpertWeights weights = small();
  EXPECT_EQ(reason(weights), "");
  weights.gate_bias = weights.up_bias = std::vector<float>(6);
  weights.down_bias = std::vector<float>(8);
  EXPECT_EQ(reason(weights), "");
}

TEST(ExpertWeights, RefusesAMissingExpert) {
  ExpertWeights weights = small();
  weights.up.pop_back();
  EXPECT_THAT(reason(weights), HasSubstr("1 experts have weights, and not 2 (up)"));
}

TEST(ExpertWeights, RefusesAWrongShapeByExpert) {
  ExpertWeights weights = small();
  std::swap(weights.gate[1], weights.down[1]);
  EXPECT_THAT(reason(weights),
              HasSubstr("a weight of [4, 3] where [3, 4] belongs (expert 1, gate"));
}

TEST(ExpertWeights, RefusesMixedFormats) {
  ExpertWeights weights = small();
  weights.down[1] = bf16_matrix(4, 3);
  EXPECT_THAT(reason(weights), HasSubstr("in bf16 beside others in f32 (expert 1, down)"));

  weights = small();
  for (quant::Weight& up : weights.up) up = bf16_matrix(3, 4);
  EXPECT_THAT(reason(weights), HasSubstr("gate in f32 and up in bf16"));
}

TEST(ExpertWeights, RefusesBiasesThatDoNotFit) {
  ExpertWeights weights = small();
  weights.gate_bias = std::vector<float>(6);
  EXPECT_THAT(reason(weights), HasSubstr("biases of 6, 0 and 0 numbers"));
  weights.up_bias = std::vector<float>(6);
  weights.down_bias = std::vector<float>(6);
  EXPECT_THAT(reason(weights), HasSubstr("biases of 6, 6 and 6 numbers"));
}

TEST(ExpertWeights, RefusesNoExperts) { EXPECT_THAT(reason({}), HasSubstr("0 experts")); }

}  // namespace
}  // namespace motley::moe
