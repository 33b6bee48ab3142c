#include "base/result.h"

#include <memory>
#include <string>
#include <type_traits>

#include <gtest/gtest.h>

namespace motley {
namespace {

Error broken() { return {ErrorCode::bad_file, "broken", "here", "mend it"}; }

Result<std::unique_ptr<int>> half(int number) {
  if (number % 2 != 0) return broken();
  return std::make_unique<int>(number / 2);
}

Result<int> quarter(int number) {
  MOTLEY_TRY(const std::unique_ptr<int> once, half(number));
  MOTLEY_TRY(std::unique_ptr<int> twice, half(*once));
  return *twice;
}

Result<void> even(int number) {
  if (number % 2 != 0) return broken();
  return {};
}

Result<std::string> checked(int number, int& calls) {
  MOTLEY_TRY_VOID(even((++calls, number)));
  return std::string("even");
}

TEST(Result, HoldsAValueOrAnError) {
  const Result<int> value = 7;
  EXPECT_TRUE(value.ok());
  EXPECT_TRUE(static_cast<bool>(value));
  EXPECT_EQ(value.value(), 7);
  EXPECT_EQ(*value, 7);
  const Result<int> error = broken();
  EXPECT_FALSE(error.ok());
  EXPECT_FALSE(static_cast<bool>(error));
  EXPECT_EQ(error.error().message(), "broken (here): mend it");
}

TEST(Result, OfNothingIsDoneOrAnError) {
  EXPECT_TRUE(Result<void>().ok());
  Result<void>().value();
  const Result<void> error = broken();
  EXPECT_FALSE(error.ok());
  EXPECT_EQ(error.error().code(), ErrorCode::bad_file);
}

TEST(Result, MovesWhatCannotBeCopied) {
  std::unique_ptr<int> owned = half(10).value();
  EXPECT_EQ(*owned, 5);
  static_assert(!std::is_copy_constructible_v<Result<std::unique_ptr<int>>>);
}

TEST(Result, ReachesMembersOfTheValue) {
  Result<std::string> text = std::string("abc");
  EXPECT_EQ(text->size(), 3U);
  text->push_back('d');
  EXPECT_EQ(*text, "abcd");
}

TEST(Try, GivesTheValueOrReturnsTheError) {
  EXPECT_EQ(quarter(12).value(), 3);
  EXPECT_EQ(quarter(3).error().what(), "broken");
  EXPECT_EQ(quarter(6).error().what(), "broken");
}

TEST(Try, EvaluatesItsCallOnce) {
  int calls = 0;
  EXPECT_EQ(checked(2, calls).value(), "even");
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(checked(1, calls).error().where(), "here");
  EXPECT_EQ(calls, 2);
}

TEST(ResultDeathTest, ReadingTheValueOfAnErrorAbortsWithItsMessage) {
  EXPECT_DEATH(static_cast<void>(Result<int>(broken()).value()), "broken \\(here\\): mend it");
  EXPECT_DEATH(Result<void>(broken()).value(), "broken \\(here\\): mend it");
}

TEST(ResultDeathTest, ReadingTheErrorOfAValueAborts) {
  EXPECT_DEATH(static_cast<void>(Result<int>(1).error()), "broken invariant");
  EXPECT_DEATH(static_cast<void>(Result<void>().error()), "broken invariant");
}

TEST(CheckDeathTest, PrintsThePlaceTheConditionAndTheReason) {
  EXPECT_DEATH(MOTLEY_CHECK(1 == 2, "numbers differ"),
               "broken invariant at .*result_test.cc:[0-9]+: 1 == 2 \\(numbers differ\\)");
}

}  // namespace
}  // namespace motley
