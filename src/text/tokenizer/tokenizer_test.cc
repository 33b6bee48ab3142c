#include "text/tokenizer.h"

#include <atomic>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/system/temporary_folder.h"

namespace motley::text {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// A tokenizer.json in parts, with the simplest defaults.
struct File {
  std::string added = "[]";
  std::string normalizer = "null";
  std::string pre_tokenizer = "null";
  std::string post_processor = "null";
  std::string decoder = R"({"type":"Fuse"})";
  std::string model = R"("vocab":{"a":0,"b":1,"c":2,"ab":3,"abc":4},"merges":["a b","ab c"])";

  std::string text() const {
    return cat(R"({"version":"1.0","added_tokens":)", added, R"(,"normalizer":)", normalizer,
               R"(,"pre_tokenizer":)", pre_tokenizer, R"(,"post_processor":)", post_processor,
               R"(,"decoder":)", decoder, R"(,"model":{"type":"BPE",)", model, "}}");
  }
  Result<Tokenizer> parse() const { return Tokenizer::parse(text(), "tokenizer.json"); }
};

// One of the added tokens of a file; `flags` are those that are true.
std::string added_token(int id, std::string_view content, std::string_view flags = {}) {
  std::string text = cat(R"({"id":)", id, R"(,"content":")", content, '"');
  for (const std::string_view flag : {"single_word", "lstrip", "rstrip", "normalized", "special"})
    text += cat(",\"", flag, "\":", flags.find(flag) != std::string_view::npos);
  return text + "}";
}

// The tokens of a text.
std::vector<std::string> tokens(const Tokenizer& tokenizer, const MarkedText& text,
                                const EncodeOptions& options = {}) {
  const auto ids = tokenizer.encode(text, options);
  if (!ids.ok()) return {ids.error().message()};
  std::vector<std::string> words;
  for (const std::int32_t id : *ids) words.emplace_back(tokenizer.token_of(id).value_or("?"));
  return words;
}

std::vector<std::string> tokens(const File& file, std::string_view text) {
  const auto tokenizer = file.parse();
  if (!tokenizer.ok()) return {tokenizer.error().message()};
  return tokens(*tokenizer, {.text = std::string(text)});
}

// The same for entirely untrusted text.
std::vector<std::string> untrusted_tokens(const File& file, std::string_view text) {
  const auto tokenizer = file.parse();
  if (!tokenizer.ok()) return {tokenizer.error().message()};
  MarkedText marked;
  marked.append(text, true);
  return tokens(*tokenizer, marked);
}

std::string refusal(const File& file) {
  const auto tokenizer = file.parse();
  return tokenizer.ok() ? "read" : tokenizer.error().message();
}

TEST(Tokenizer, MergesTheLowestRankFirst) {
  EXPECT_THAT(tokens(File{}, "abcabba"), ElementsAre("abc", "ab", "b", "a"));
  const File late{.model = R"("vocab":{"a":0,"b":1,"c":2,"ab":3,"bc":4},"merges":["b c","a b"])"};
  EXPECT_THAT(tokens(late, "abcab"), ElementsAre("a", "bc", "ab"));
}

TEST(Tokenizer, MergesLongWordsAsShortOnes) {
  std::string text;
  std::vector<std::string> expected;
  for (int i = 0; i < 1000; ++i) {
    text += i % 3 == 0 ? "abb" : "abca";
    for (const char* token : {i % 3 == 0 ? "ab" : "abc", i % 3 == 0 ? "b" : "a"})
      expected.emplace_back(token);
  }
  EXPECT_EQ(tokens(File{}, text), expected);
}

TEST(Tokenizer, ReadsMergesInBothSpellings) {
  const File pairs{
      .model = R"("vocab":{"a":0,"b":1," c":2,"ab":3,"ab c":4},"merges":[["a","b"],["ab"," c"]])"};
  EXPECT_EQ(refusal(pairs), "read");
  const File strings{.model = R"("vocab":{"a":0,"b":1,"ab":2},"merges":["#version: 0.2","a b"])"};
  EXPECT_THAT(tokens(strings, "ab"), ElementsAre("ab"));
}

TEST(Tokenizer, TakesWholeWordsWhereMergesAreIgnored) {
  const std::string model = R"("vocab":{"a":0,"b":1,"ba":2},"merges":[])";
  EXPECT_THAT(tokens(File{.model = model}, "ba"), ElementsAre("b", "a"));
  EXPECT_THAT(tokens(File{.model = R"("ignore_merges":true,)" + model}, "ba"), ElementsAre("ba"));
}

TEST(Tokenizer, LeavesOutOrNamesWhatTheVocabularyLacks) {
  EXPECT_THAT(tokens(File{}, "axyb"), ElementsAre("ab"));
  const std::string model = R"("unk_token":"?","vocab":{"a":0,"b":1,"?":2},"merges":[])";
  EXPECT_THAT(tokens(File{.model = model}, "axyb"), ElementsAre("a", "?", "?", "b"));
  EXPECT_THAT(tokens(File{.model = R"("fuse_unk":true,)" + model}, "axyb"),
              ElementsAre("a", "?", "b"));
  EXPECT_THAT(tokens(File{.model = R"("unk_token":"!","vocab":{"a":0},"merges":[])"}, "ax"),
              ElementsAre(HasSubstr("'!'")));
}

TEST(Tokenizer, FallsBackToBytesIfThereAreAllOfThem) {
  const File file{
      .model =
          R"("byte_fallback":true,"unk_token":"?","vocab":{"a":0,"?":1,"<0xC3>":2,"<0xA4>":3},"merges":[])"};
  EXPECT_THAT(tokens(file, "a\u00E4\u00F6a"), ElementsAre("a", "<0xC3>", "<0xA4>", "?", "a"));
}

TEST(Tokenizer, ReadsBrokenUtf8AsReplacementCharacters) {
  const File file{.model = R"("vocab":{"a":0,"\uFFFD":1},"merges":[])"};
  EXPECT_THAT(tokens(file, "a\xFF\xE2\x82 a"), ElementsAre("a", "\uFFFD", "\uFFFD", "a"));
  MarkedText marked;
  marked.append("a\xE2", false);
  marked.append(
      "\x82"
      "a",
      true);
  EXPECT_THAT(tokens(file.parse().value(), marked), ElementsAre("a", "\uFFFD", "a"));
}

TEST(Tokenizer, EndsWhereThereAreTooManyTokens) {
  const Tokenizer tokenizer = File().parse().value();
  const EncodeOptions few{.bounds = {.max_tokens = 2}};
  EXPECT_THAT(tokenizer.encode("abcab", few).value(), ElementsAre(4, 3));
  const auto many = tokenizer.encode("abcabc" + std::string(100'000, 'b'), few);
  ASSERT_FALSE(many.ok());
  EXPECT_EQ(many.error().code(), ErrorCode::too_long);
  EXPECT_EQ(many.error().what(), "more than 2 tokens");
}

TEST(Tokenizer, EndsSoonOnceItIsCancelled) {
  std::atomic<bool> cancelled = true;
  // One long word, and many short ones.
  for (const char* const pre_tokenizer : {"null", R"({"type":"WhitespaceSplit"})"}) {
    const Tokenizer tokenizer = File{.pre_tokenizer = pre_tokenizer}.parse().value();
    std::string text;
    for (int i = 0; i < 20'000; ++i) text += "ab ";
    const auto ended = tokenizer.encode(text, {.bounds = {.cancelled = &cancelled}});
    ASSERT_FALSE(ended.ok()) << pre_tokenizer;
    EXPECT_EQ(ended.error().code(), ErrorCode::cancelled);
  }
  cancelled = false;
  EXPECT_TRUE(File().parse().value().encode("ab", {.bounds = {.cancelled = &cancelled}}).ok());
}

TEST(Tokenizer, FindsTheLongestAddedToken) {
  const File file{.added = cat("[", added_token(5, "<a"), ",", added_token(6, "<ab>"), ",",
                               added_token(7, "b>"), "]")};
  EXPECT_THAT(tokens(file, "<ab><ab<ab>>"), ElementsAre("<ab>", "<a", "b", "<ab>"));
}

TEST(Tokenizer, AddedTokensTakeWhiteSpaceAndKeepToWords) {
  const std::string model = R"("vocab":{"a":0,"b":1," ":2},"merges":[])";
  const File strip{
      .added = cat("[", added_token(3, "<l>", "lstrip"), ",", added_token(4, "<r>", "rstrip"), "]"),
      .model = model};
  EXPECT_THAT(tokens(strip, "a  <l>  b"), ElementsAre("a", "<l>", " ", " ", "b"));
  EXPECT_THAT(tokens(strip, "a  <r>  b"), ElementsAre("a", " ", " ", "<r>", "b"));
  EXPECT_THAT(tokens(strip, "<r> <l>"), ElementsAre("<r>", "<l>"));
  const File word{.added = cat("[", added_token(3, "ab", "single_word"), "]"), .model = model};
  EXPECT_THAT(tokens(word, "ab aab ab"), ElementsAre("ab", " ", "a", "a", "b", " ", "ab"));
}

TEST(Tokenizer, AddedTokensShareWhiteSpaceAsInThePackage) {
  const std::string model = R"("vocab":{"a":0,"b":1," ":2},"merges":[])";
  const File inside{
      .added = cat("[", added_token(3, "<r>", "rstrip"), ",", added_token(4, "  "), "]"),
      .model = model};
  EXPECT_THAT(tokens(inside, "<r>     b"), ElementsAre("<r>", "  ", "  ", " ", "b"));
  const File both{.added = cat("[", added_token(2, " ", "lstrip rstrip"), "]"), .model = model};
  EXPECT_THAT(tokens(both, "a    b"), ElementsAre("a", " ", "b"));
  const File right{.added = cat("[", added_token(2, " ", "rstrip"), "]"), .model = model};
  EXPECT_THAT(tokens(right, "a  b"), ElementsAre("a", " ", " ", "b"));
}

TEST(Tokenizer, LooksForNormalizedTokensInNormalizedText) {
  const File file{
      .added = cat("[", added_token(5, "AB!", "normalized"), ",", added_token(6, "C"), "]"),
      .normalizer = R"({"type":"Lowercase"})"};
  EXPECT_THAT(tokens(file, "aB!Cc"), ElementsAre("AB!", "C", "c"));
  EXPECT_EQ(file.parse()->decode({{5}}, false), "ab!");
}

TEST(Tokenizer, AddsWhatTheTemplateSays) {
  const File file{.added = cat("[", added_token(5, "<s>", "special"), "]"),
                  .post_processor = R"({"type":"Sequence","processors":[
        {"type":"ByteLevel","add_prefix_space":true,"trim_offsets":false,"use_regex":true},
        {"type":"TemplateProcessing",
         "single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}},
                   {"SpecialToken":{"id":"<s>","type_id":0}}],
         "pair":[],"special_tokens":{"<s>":{"id":"<s>","ids":[5],"tokens":["<s>"]}}}]})"};
  EXPECT_THAT(tokens(file, "ab"), ElementsAre("<s>", "ab", "<s>"));
  EXPECT_THAT(tokens(file.parse().value(), {.text = "ab"}, {.add_special_tokens = false}),
              ElementsAre("ab"));
}

TEST(Tokenizer, LooksTokensUp) {
  const Tokenizer tokenizer =
      File{.added = cat("[", added_token(5, "<s>", "special"), ",", added_token(6, "<t>"), "]")}
          .parse()
          .value();
  EXPECT_EQ(tokenizer.size(), 7);
  EXPECT_EQ(tokenizer.id_of("ab"), 3);
  EXPECT_EQ(tokenizer.id_of("<s>"), 5);
  EXPECT_EQ(tokenizer.id_of("x"), std::nullopt);
  EXPECT_EQ(tokenizer.token_of(5), "<s>");
  EXPECT_EQ(tokenizer.token_of(7), std::nullopt);
  EXPECT_EQ(tokenizer.token_of(-1), std::nullopt);
  EXPECT_TRUE(tokenizer.is_special(5));
  EXPECT_FALSE(tokenizer.is_special(6));
  EXPECT_TRUE(tokenizer.is_added(6));
  EXPECT_FALSE(tokenizer.is_added(3));
}

TEST(Tokenizer, DecodesWithoutADecoderAsWordsWithSpaces) {
  const Tokenizer tokenizer = File{.decoder = "null"}.parse().value();
  EXPECT_EQ(tokenizer.decode({{3, 99, 2, 0}}, false), "ab c a");
  EXPECT_EQ(tokenizer.decode({}, false), "");
}

// Untrusted text, by the ways in which the model or the file could make special tokens of it.

TEST(UntrustedText, SpecialTokensAreTextAndOthersStay) {
  const File file{
      .added = cat("[", added_token(5, "<ab>", "special"), ",", added_token(6, "<a"), "]"),
      .model = R"("vocab":{"a":0,"b":1,"<":2,">":3,"x":4},"merges":[])"};
  EXPECT_THAT(tokens(file, "<ab>"), ElementsAre("<ab>"));
  EXPECT_THAT(untrusted_tokens(file, "x<ab>"), ElementsAre("x", "<a", "b", ">"));
  MarkedText half;
  half.append("<a", false);
  half.append("b><ab>", true);
  half.append("<ab>", false);
  EXPECT_THAT(tokens(file.parse().value(), half),
              ElementsAre("<a", "b", ">", "<a", "b", ">", "<ab>"));
  EXPECT_THAT(tokens(file.parse().value(), half, {.special_in_untrusted = true}),
              ElementsAre("<ab>", "<ab>", "<ab>"));
}

TEST(UntrustedText, ModelsDoNotBuildSpecialTokensOfIt) {
  const std::string added = cat("[", added_token(3, "ab", "special"), "]");
  const std::string model = R"("vocab":{"a":0,"b":1,"bab":2,"ab":3},"merges":["a b","b ab"])";
  EXPECT_THAT(untrusted_tokens(File{.added = added, .model = model}, "ab"), ElementsAre("a", "b"));
  EXPECT_THAT(
      untrusted_tokens(File{.added = added, .model = R"("ignore_merges":true,)" + model}, "ab"),
      ElementsAre("a", "b"));
  // As an intermediate result of merges it is harmless.
  EXPECT_THAT(untrusted_tokens(File{.added = added, .model = model}, "bab"), ElementsAre("bab"));
}

TEST(UntrustedText, UnknownCharactersAndBytesAreNotSpecialTokens) {
  const File unknown{.added = cat("[", added_token(1, "<unk>", "special"), "]"),
                     .model = R"("unk_token":"<unk>","vocab":{"a":0,"<unk>":1},"merges":[])"};
  EXPECT_THAT(tokens(unknown, "axa"), ElementsAre("a", "<unk>", "a"));
  EXPECT_THAT(untrusted_tokens(unknown, "axa"), ElementsAre("a", "a"));
  const File bytes{
      .added = cat("[", added_token(2, "<0x78>", "special"), "]"),
      .model =
          R"("byte_fallback":true,"unk_token":"?","vocab":{"a":0,"?":1,"<0x78>":2},"merges":[])"};
  EXPECT_THAT(tokens(bytes, "ax"), ElementsAre("a", "<0x78>"));
  EXPECT_THAT(untrusted_tokens(bytes, "ax"), ElementsAre("a", "?"));
}

TEST(UntrustedText, MarksFollowBytesThroughNormalizers) {
  const std::string added = cat("[", added_token(2, "AB", "special normalized"), "]");
  const std::string model = R"("vocab":{"a":0,"b":1},"merges":[])";
  const File lower{.added = added, .normalizer = R"({"type":"Lowercase"})", .model = model};
  EXPECT_THAT(tokens(lower, "aB"), ElementsAre("AB"));
  EXPECT_THAT(untrusted_tokens(lower, "aB"), ElementsAre("a", "b"));
  const File removed{.added = added,
                     .normalizer = R"({"type":"Sequence","normalizers":[{"type":"Lowercase"},
        {"type":"Replace","pattern":{"String":"-"},"content":""},
        {"type":"Replace","pattern":{"String":"x"},"content":"ab"}]})",
                     .model = model};
  EXPECT_THAT(untrusted_tokens(removed, "a--bx"), ElementsAre("a", "b", "a", "b"));
  MarkedText text;
  text.append("--", true);
  text.append("ab", false);
  text.append("a-", true);
  text.append("b-a-b", false);
  EXPECT_THAT(tokens(removed.parse().value(), text), ElementsAre("AB", "a", "b", "AB"));
}

TEST(UntrustedText, CharactersThatComposeAreUntrustedIfAPartIs) {
  // U+226E is "<" with a stroke through it, in untrusted text.
  const File file{.added = cat("[", added_token(2, "\u226E", "special normalized"), "]"),
                  .normalizer = R"({"type":"NFC"})",
                  .model = R"("vocab":{"a":0,"b":1},"merges":[])"};
  EXPECT_THAT(tokens(file, "a<\u0338"), ElementsAre("a", "\u226E"));
  MarkedText text;
  text.append("a<", false);
  text.append(
      "\u0338"
      "b",
      true);
  EXPECT_THAT(tokens(file.parse().value(), text), ElementsAre("a", "b"));
}

// Unsupported features are refused, by name and with advice.

TEST(TokenizerFile, RefusesUnknownParts) {
  EXPECT_THAT(refusal({.normalizer = R"({"type":"Precompiled"})"}),
              AllOf(HasSubstr("normalizer Precompiled"), HasSubstr("NFC")));
  EXPECT_THAT(refusal({.pre_tokenizer = R"({"type":"BertPreTokenizer"})"}),
              AllOf(HasSubstr("pre_tokenizer BertPreTokenizer"), HasSubstr("Metaspace")));
  EXPECT_THAT(
      refusal({.post_processor = R"({"type":"RobertaProcessing"})"}),
      AllOf(HasSubstr("post_processor RobertaProcessing"), HasSubstr("TemplateProcessing")));
  EXPECT_THAT(refusal({.decoder = R"({"type":"WordPiece"})"}),
              AllOf(HasSubstr("decoder WordPiece"), HasSubstr("ByteFallback")));
  EXPECT_THAT(refusal({.decoder = R"({"type":"Sequence","decoders":[{"type":"BPEDecoder"}]})"}),
              HasSubstr("decoder 0 BPEDecoder"));
  EXPECT_THAT(refusal({.normalizer = R"({"form":"NFC"})"}), HasSubstr("has no type"));
}

TEST(TokenizerFile, RefusesUnknownValues) {
  EXPECT_THAT(refusal({.normalizer = R"({"type":"NFC","strict":true})"}), HasSubstr("'strict'"));
  EXPECT_THAT(refusal({.pre_tokenizer = R"({"type":"Punctuation","behavior":"Dropped"})"}),
              AllOf(HasSubstr("'Dropped'"), HasSubstr("Contiguous")));
  EXPECT_THAT(
      refusal(
          {.pre_tokenizer =
               R"({"type":"Split","pattern":{"Glob":"*"},"behavior":"Removed","invert":false})"}),
      HasSubstr("Regex"));
  EXPECT_THAT(refusal({.pre_tokenizer =
                           R"({"type":"Metaspace","replacement":"_","prepend_scheme":"last"})"}),
              AllOf(HasSubstr("'last'"), HasSubstr("first")));
  EXPECT_THAT(refusal({.decoder = R"({"type":"Replace","pattern":{"String":""},"content":"x"})"}),
              HasSubstr("not empty"));
  EXPECT_THAT(refusal({.model = R"("dropout":0.1,"vocab":{},"merges":[])"}), HasSubstr("dropout"));
  EXPECT_EQ(refusal({.model = R"("dropout":0.0,"vocab":{},"merges":[])"}), "read");
  EXPECT_THAT(refusal({.model = R"("end_of_word_suffix":"</w>","vocab":{},"merges":[])"}),
              HasSubstr("end_of_word_suffix"));
  EXPECT_EQ(refusal({.model = R"("end_of_word_suffix":"","vocab":{},"merges":[])"}), "read");
  EXPECT_THAT(refusal({.model = R"("beam":2,"vocab":{},"merges":[])"}), HasSubstr("'beam'"));
  EXPECT_THAT(Tokenizer::parse(R"({"version":"2.0"})", "f").error().message(), HasSubstr("1.0"));
  EXPECT_THAT(Tokenizer::parse(R"({"lattice":{}})", "f").error().message(), HasSubstr("'lattice'"));
  EXPECT_THAT(Tokenizer::parse(R"({"model":{"type":"Unigram","vocab":[]}})", "f").error().message(),
              AllOf(HasSubstr("Unigram"), HasSubstr("BPE")));
}

TEST(TokenizerFile, RefusesWhatContradictsItself) {
  EXPECT_THAT(refusal({.model = R"("vocab":{"a":0},"merges":["a b"])"}), HasSubstr("'b'"));
  EXPECT_THAT(refusal({.model = R"("vocab":{"a":0,"b":1},"merges":["a b"])"}), HasSubstr("'ab'"));
  EXPECT_THAT(refusal({.model = R"("vocab":{"a":0},"merges":["a a a"])"}), HasSubstr("pair"));
  EXPECT_THAT(refusal({.model = R"("vocab":{"a":0,"b":0},"merges":[])"}), HasSubstr("both"));
  EXPECT_THAT(refusal({.model = R"("vocab":{"a":-1},"merges":[])"}), HasSubstr("-1"));
  EXPECT_THAT(refusal({.model = R"("vocab":{"a":99999999},"merges":[])"}), HasSubstr("99999999"));
  EXPECT_THAT(refusal({.added = cat("[", added_token(9, "<s>"), "]")}),
              HasSubstr("where 5 is next"));
  EXPECT_THAT(refusal({.added = cat("[", added_token(1, "ab"), "]")}), HasSubstr("3"));
  EXPECT_THAT(refusal({.added = cat("[", added_token(5, "x"), ",", added_token(6, "x"), "]")}),
              HasSubstr("twice"));
  EXPECT_THAT(refusal({.added = cat("[", added_token(5, " ", "normalized"), "]"),
                       .normalizer = R"({"type":"Strip","strip_left":true,"strip_right":true})"}),
              HasSubstr("nothing once it is normalized"));
  EXPECT_THAT(refusal({.added = cat("[", added_token(5, "X", "normalized"), ",",
                                    added_token(6, "x", "normalized"), "]"),
                       .normalizer = R"({"type":"Lowercase"})"}),
              HasSubstr("the same as 'X'"));
  EXPECT_THAT(
      refusal(
          {.post_processor =
               R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}}],
                       "pair":[],"special_tokens":{}})"}),
      HasSubstr("'<s>'"));
  EXPECT_THAT(
      refusal(
          {.post_processor =
               R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"s","type_id":0}}],
                       "pair":[],"special_tokens":{"s":{"id":"s","ids":[77],"tokens":["s"]}}})"}),
      HasSubstr("77"));
}

TEST(TokenizerFile, RefusesTextsThatStepsBlowUp) {
  const std::string twice = R"({"type":"Replace","pattern":{"String":"a"},"content":"aaaaaaaa"})";
  std::string steps = twice;
  for (int i = 0; i < 12; ++i) steps += "," + twice;
  const File file{.normalizer = cat(R"({"type":"Sequence","normalizers":[)", steps, "]}")};
  EXPECT_THAT(tokens(file, "aaaaaaaaaaaaaaaa"), ElementsAre(HasSubstr("100 times")));
  EXPECT_THAT(refusal({.decoder = cat(R"({"type":"Sequence","decoders":[)", steps, "]}")}),
              HasSubstr("decoder"));
}

TEST(TokenizerFile, IsNamedWhereAFolderLacksIt) {
  const TemporaryFolder folder;
  EXPECT_THAT(Tokenizer::load(folder.path()).error().message(), HasSubstr("no tokenizer.json"));
  EXPECT_THAT(Tokenizer::load(folder.path() / "gone").error().message(),
              HasSubstr("no such folder"));
  folder.file("tiktoken.model", "IQ== 0\n");
  EXPECT_THAT(Tokenizer::load(folder.path()).error().message(),
              HasSubstr("convert_tiktoken_to_fast"));
}

TEST(Tokenizer, GivesTheBytesOfTokens) {
  File level;
  level.decoder = R"({"type":"ByteLevel"})";
  level.added = cat("[", added_token(3, "<end>", "special"), ",", added_token(4, "<think>"), "]");
  level.model = R"("vocab":{"Ġa":0,"Ã":1,"Ċ":2},"merges":[])";
  const Tokenizer bytes = level.parse().value();
  EXPECT_EQ(bytes.bytes_of(0), " a");
  EXPECT_EQ(bytes.bytes_of(1), "\xC3") << "a part of a character";
  EXPECT_EQ(bytes.bytes_of(2), "\n");
  EXPECT_EQ(bytes.bytes_of(3), "<end>");
  EXPECT_EQ(bytes.bytes_of(4), "<think>");
  EXPECT_EQ(bytes.bytes_of(99), "");
  File fallback;
  fallback.decoder = R"({"type":"Sequence","decoders":[
      {"type":"Replace","pattern":{"String":"▁"},"content":" "}, {"type":"ByteFallback"},
      {"type":"Fuse"}, {"type":"Strip","content":" ","start":1,"stop":0}]})";
  fallback.model = R"("vocab":{"▁a":0,"<0xE2>":1,"<0x0A>":2},"merges":[])";
  const Tokenizer llama = fallback.parse().value();
  EXPECT_EQ(llama.bytes_of(0), " a") << "only a text's first space is taken away";
  EXPECT_EQ(llama.bytes_of(1), "\xE2");
  EXPECT_EQ(llama.bytes_of(2), "\n");
}

}  // namespace
}  // namespace motley::text
