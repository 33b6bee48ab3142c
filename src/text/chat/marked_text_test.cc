#include "text/chat/marked_text.h"

#include <gtest/gtest.h>

namespace motley::text {
namespace {

MarkedText conversation() {
  MarkedText text;
  text.append("<user>", false);
  text.append("hello ", true);
  text.append("there", true);
  text.append("</user>", false);
  return text;
}

TEST(MarkedText, NeighbouringUntrustedBytesAreOneSpan) {
  const MarkedText text = conversation();
  EXPECT_EQ(text.text, "<user>hello there</user>");
  EXPECT_EQ(text.untrusted, (std::vector<Span>{{6, 17}}));
}

TEST(MarkedText, NothingUntrustedLeavesNoSpan) {
  MarkedText text;
  text.append("", true);
  EXPECT_TRUE(text.untrusted.empty());
}

TEST(MarkedText, AnyUntrustedSeesOverlapsOnly) {
  const MarkedText text = conversation();
  EXPECT_FALSE(text.any_untrusted(0, 6));
  EXPECT_TRUE(text.any_untrusted(0, 7));
  EXPECT_TRUE(text.any_untrusted(16, 24));
  EXPECT_FALSE(text.any_untrusted(17, 24));
  EXPECT_FALSE(text.any_untrusted(10, 10));
}

TEST(MarkedText, PartsAndSumsKeepTheirMarks) {
  const MarkedText whole = conversation();
  for (std::size_t cut = 0; cut <= whole.text.size(); ++cut) {
    MarkedText joined = whole.part(0, cut);
    joined.append(whole.part(cut, whole.text.size()));
    EXPECT_EQ(joined, whole) << "cut at " << cut;
  }
}

TEST(MarkedText, CanBeAppendedToItself) {
  MarkedText text = conversation();
  text.append(text);
  EXPECT_EQ(text.text, "<user>hello there</user><user>hello there</user>");
  EXPECT_EQ(text.untrusted, (std::vector<Span>{{6, 17}, {30, 41}}));
}

}  // namespace
}  // namespace motley::text
