#include "serving/answers/routed_tokens.h"

#include <gtest/gtest.h>

namespace motley::serving {
namespace {

std::string all_of(const RoutedTokens& routed, std::size_t index) {
  std::string text;
  // In two pieces, at every border.
  const std::size_t bytes = routed.bytes(index);
  for (std::size_t at = 0; at <= bytes; ++at) {
    std::string pieces;
    routed.append_to(pieces, index, 0, at);
    routed.append_to(pieces, index, at, bytes);
    EXPECT_TRUE(at == 0 || pieces == text) << at;
    text = pieces;
  }
  return text;
}

TEST(RoutedTokens, OfAChoiceAreThoseOfItsPromptAndItsOwn) {
  RoutedTokens routed(2, 2);
  EXPECT_EQ(all_of(routed, 3), "");
  const std::vector<std::uint8_t> a(3, 'a');
  const std::vector<std::uint8_t> b(2, 'b');
  const std::vector<std::uint8_t> c(2, 'c');
  routed.take_choice(0, c);
  EXPECT_EQ(all_of(routed, 0), "cc");
  routed.take_prompt(1, a);
  routed.take_choice(3, b);
  routed.take_choice(3, c);
  EXPECT_EQ(all_of(routed, 0), "cc");
  EXPECT_EQ(all_of(routed, 1), "");
  EXPECT_EQ(all_of(routed, 2), "aaa");
  EXPECT_EQ(all_of(routed, 3), "aaabbcc");
  EXPECT_GE(routed.kept_bytes(), 6U);
}

}  // namespace
}  // namespace motley::serving
