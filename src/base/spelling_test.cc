#include "base/spelling.h"

#include <array>

#include <gtest/gtest.h>

namespace motley {
namespace {

TEST(Closest, FindsSlipsAndNothingElse) {
  const std::array<std::string_view, 3> words = {"inspect", "serve", "score"};
  EXPECT_EQ(closest("inspct", words), "inspect");
  EXPECT_EQ(closest("sevre", words), "serve");
  EXPECT_EQ(closest("quantum", words), std::nullopt);
  EXPECT_EQ(closest("inspect the model", words), std::nullopt);
  EXPECT_EQ(closest("", words), std::nullopt);
}

}  // namespace
}  // namespace motley
