#include "text/unicode/unicode.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/utf8.h"
#include "text/unicode/case_folding.h"
#include "text/unicode/code_set.h"
#include "text/unicode/property.h"

namespace motley::text::unicode {
namespace {

std::string repeated(std::string_view text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

TEST(Unicode, ComposesAcrossWhatIsInTheForm) {
  EXPECT_EQ(nfc("abce\u0301de\u0323\u0302"), "abc\u00e9d\u1ec7");
  EXPECT_EQ(nfc("e\u0302\u0323"), "\u1ec7");
  EXPECT_EQ(nfc("\u1100\u1161\u11a8\u11a8"), "\uac01\u11a8");
  EXPECT_EQ(nfd("\uac01\u00e9"), "\u1100\u1161\u11a8e\u0301");
  EXPECT_EQ(nfkc("\ufb03\u00b2 \u2460"), "ffi2 1");
  EXPECT_EQ(nfkd("\u1e9b\u0323"), "s\u0323\u0307");
}

TEST(Unicode, LeavesWhatIsInTheFormAlone) {
  for (const std::string_view text : {"", "plain", "\u00e9\u4e2d\u6587 \u00fc", "\U0001F600x"})
    EXPECT_EQ(nfc(text), text);
}

// A mark must see the character before the block of ASCII that the quick check skips.
TEST(Unicode, MarksAfterLongAsciiCompose) {
  for (int length = 0; length < 100; ++length) {
    const std::string plain(static_cast<std::size_t>(length), 'a');
    EXPECT_EQ(nfc(plain + "e\u0301"), plain + "\u00e9");
  }
}

TEST(Unicode, LongRunsOfMarksAreOrderedOnce) {
  const std::string above = repeated("\u0301", 20'000);
  const std::string below = repeated("\u0323", 20'000);
  EXPECT_EQ(nfd("a" + above + below), "a" + below + above);
}

// nfc() skips these lead bytes.
TEST(Unicode, CharactersThatTheQuickCheckSkipsStay) {
  const auto stays = [](char32_t first, char32_t last, std::string (*form)(std::string_view)) {
    std::string text;
    for (char32_t c = first; c <= last; ++c) utf8::append(text, c);
    return form(text) == text && form(text + "a") == text + "a";
  };
  EXPECT_TRUE(stays(0x80, 0x2FF, nfc));
  EXPECT_TRUE(stays(0x80, 0xBF, nfd));
  for (const auto form : {nfc, nfd, nfkc, nfkd}) EXPECT_TRUE(stays(0x4000, 0x9FFF, form));
}

TEST(Unicode, LowersACharacterAtATime) {
  EXPECT_EQ(lowercase("\u0130\u03a3A\u1e9e\u00c9z"), "i\u0307\u03c3a\u00df\u00e9z");
}

TEST(Unicode, VersionsDifferAsThePackagesDo) {
  EXPECT_EQ(category(0x1C89), Category::Lu);   // Unicode 16
  EXPECT_TRUE(is_numeric(0x11DE0));            // 17
  EXPECT_EQ(category(0x11DE0), Category::Cn);  // not in 16
  EXPECT_TRUE(is_punctuation(0x166D));         // a symbol since 12
  EXPECT_EQ(category(0x166D), Category::So);
  EXPECT_TRUE(is_combining_mark(0x1CF2));  // a letter since 12
  EXPECT_EQ(category(0x1CF2), Category::Lo);
  EXPECT_EQ(nfkc("\u32ff"), "\u32ff");  // decomposes since 12.1
}

TEST(Property, NamesAreReadLoosely) {
  EXPECT_EQ(property("Uppercase_Letter"), property("lu"));
  EXPECT_EQ(property("kata kana"), property("Kana"));
  EXPECT_FALSE(property("Klingon").has_value());
  EXPECT_FALSE(property("").has_value());
}

TEST(CodeSet, IsASet) {
  const CodeSet letters{{.first = 'a', .last = 'f'}, {.first = 'd', .last = 'k'}};
  EXPECT_EQ(letters, (CodeSet{{.first = 'a', .last = 'k'}}));
  EXPECT_EQ(letters.complement().complement(), letters);
  EXPECT_EQ(CodeSet::all().complement(), CodeSet());
  const CodeSet vowels{
      {.first = 'a', .last = 'a'}, {.first = 'e', .last = 'e'}, {.first = 'u', .last = 'u'}};
  EXPECT_EQ(letters.intersection(vowels),
            (CodeSet{{.first = 'a', .last = 'a'}, {.first = 'e', .last = 'e'}}));
  EXPECT_TRUE(vowels.contains('u'));
  EXPECT_FALSE(vowels.contains('b'));
  EXPECT_FALSE(CodeSet().contains('b'));
}

TEST(CaseFolding, FoldsToOneOrSeveral) {
  const CaseFolding& folding = CaseFolding::standard();
  EXPECT_EQ(folding.fold(0x17F), U's');
  EXPECT_EQ(folding.fold(0xDF), char32_t{0xDF});
  EXPECT_EQ(folding.equals('s').size(), 3U);
  EXPECT_TRUE(folding.equals('1').empty());
  ASSERT_NE(folding.several(U"ss"), nullptr);
  EXPECT_EQ(folding.several(U"ss"), folding.several_of(0x1E9E));
  EXPECT_EQ(folding.several(U"sx"), nullptr);
}

}  // namespace
}  // namespace motley::text::unicode
