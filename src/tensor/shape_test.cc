#include "tensor/shape.h"

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace motley::tensor {
namespace {

constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();

TEST(Shape, ScalarHasOneElement) {
  EXPECT_EQ(Shape().elements(), 1);
  EXPECT_EQ(to_string(Shape()), "[]");
}

TEST(Shape, CountsElements) {
  const Shape shape{3, 5, 7};
  EXPECT_EQ(shape.rank(), 3);
  EXPECT_EQ(shape[1], 5);
  EXPECT_EQ(shape.elements(), 105);
  EXPECT_EQ(to_string(shape), "[3, 5, 7]");
}

TEST(Shape, ZeroLengthHasNoElements) { EXPECT_EQ((Shape{4, 0, 9}).elements(), 0); }

TEST(Shape, EqualityLooksAtRankAndLengths) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{2}), (Shape{2, 1}));
  EXPECT_NE(Shape(), (Shape{0}));
}

TEST(Shape, RefusesNegativeLength) {
  const std::array<std::int64_t, 2> dims = {2, -1};
  const auto shape = Shape::make(dims);
  ASSERT_FALSE(shape.ok());
  EXPECT_EQ(shape.error().message(), "a negative length (shape [2, -1]): lengths are 0 or more");
}

TEST(Shape, RefusesTooManyDimensions) {
  const std::array<std::int64_t, 9> dims = {1, 2, 1, 1, 1, 1, 1, 3, 1};
  EXPECT_TRUE(Shape::make(std::span(dims).first(8)).ok());
  const auto shape = Shape::make(dims);
  ASSERT_FALSE(shape.ok());
  EXPECT_EQ(shape.error().message(),
            "9 dimensions (shape [1, 2, 1, 1, 1, 1, 1, 3, ...]): use at most 8");
  const std::vector<std::int64_t> many(1'000'000, 1);
  EXPECT_LT(Shape::make(many).error().message().size(), 200U);
}

TEST(Shape, RefusesOverflow) {
  EXPECT_TRUE(Shape::make(std::array{largest}).ok());
  EXPECT_FALSE(Shape::make(std::array{largest, std::int64_t{2}}).ok());
  EXPECT_FALSE(Shape::make(std::array{std::int64_t{1} << 32, std::int64_t{1} << 31}).ok());
}

TEST(Shape, RefusesOverflowBehindZero) {
  // The element count is 0, but the strides would overflow.
  EXPECT_FALSE(Shape::make(std::array{std::int64_t{0}, largest, largest}).ok());
}

}  // namespace
}  // namespace motley::tensor
