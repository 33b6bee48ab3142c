#include "base/base64.h"

#include <gtest/gtest.h>

namespace motley {
namespace {

std::string base64(std::string_view bytes) {
  std::string text;
  append_base64(text, bytes);
  return text;
}

// The vectors of RFC 4648.
TEST(Base64, WritesGroupsAndPadsTheLast) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("foob"), "Zm9vYg==");
  EXPECT_EQ(base64("fooba"), "Zm9vYmE=");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(base64("\xff\xfe\xfd"), "//79");
  EXPECT_EQ(base64(std::string_view("\0\0\0", 3)), "AAAA");
}

}  // namespace
}  // namespace motley
