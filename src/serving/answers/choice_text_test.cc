#include "serving/answers/choice_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/tokenizer.h"

namespace motley::serving {
namespace {

using ::testing::ElementsAre;

// Uses tokens of the text, and an id that ends answers.
class ChoiceTexts : public testing::Test {
 protected:
  std::vector<std::int32_t> ids(std::string_view text) const {
    return tokenizer_.encode(text, {.add_special_tokens = false}).value();
  }
  std::string text_of(std::int32_t id) const { return tokenizer_.decode(std::span(&id, 1), false); }
  TextRules rules() const { return {.tokenizer = &tokenizer_, .ends = {end_}}; }

  text::Tokenizer tokenizer_ = text::Tokenizer::load(MOTLEY_TOKENIZERS "/llama3").value();
  std::int32_t end_ = *tokenizer_.id_of("<|eot_id|>");
};

// The sum of all pieces of a choice.
struct Whole {
  std::string text;
  std::vector<std::int32_t> tokens;
  std::vector<std::int64_t> offsets;
  std::vector<std::string> pieces;  // of text, by token; the last one is from finish()
  bool stopped = false;
  std::optional<std::size_t> stop = {};
};

void add(Whole& whole, const ChoiceText::Piece& piece) {
  whole.text += piece.text;
  whole.pieces.push_back(piece.text);
  for (const engine::TokenEvent& token : piece.tokens) whole.tokens.push_back(token.id);
  whole.offsets.insert(whole.offsets.end(), piece.offsets.begin(), piece.offsets.end());
}

Whole read(const TextRules& rules, const std::vector<std::int32_t>& tokens, bool by_token) {
  ChoiceText text(rules, text::StopStrings::make(rules.stop).value());
  Whole whole;
  for (const std::int32_t id : tokens) {
    add(whole, text.push({.id = id}));
    if (text.stopped()) break;
  }
  if (!text.stopped()) add(whole, text.finish(by_token));
  whole.stopped = text.stopped();
  whole.stop = text.stop();
  return whole;
}

TEST_F(ChoiceTexts, TokensBeforeAStopStringAreKept) {
  const std::vector<std::int32_t> tokens = ids("1;2;3;4;");
  ASSERT_EQ(tokens.size(), 8U);
  for (const auto& [stop, kept] : {std::pair(";3;", 3), std::pair("3", 4), std::pair("4;", 6)}) {
    TextRules rules = this->rules();
    rules.stop = {stop};
    ChoiceText text(rules, text::StopStrings::make(rules.stop).value());
    for (std::size_t i = 0; !text.stopped(); ++i) text.push({.id = tokens.at(i)});
    EXPECT_EQ(text.kept_tokens(), kept) << stop;
  }
}

TEST_F(ChoiceTexts, StopStringsCountOnlyAfterMinTokens) {
  const std::vector<std::int32_t> tokens = ids("x.x.x.");
  ASSERT_EQ(tokens.size(), 6U);
  TextRules rules = this->rules();
  rules.stop = {"."};
  EXPECT_EQ(read(rules, tokens, false).text, "x");
  // The second token completes a stop string: two tokens have just been generated, as in vLLM.
  rules.min_tokens = 2;
  const Whole whole = read(rules, tokens, false);
  EXPECT_EQ(whole.text, "x.x");
  EXPECT_EQ(whole.tokens, std::vector(tokens.begin(), tokens.begin() + 4));
  EXPECT_TRUE(whole.stopped);
  // Text that cannot become a stop string is not delayed.
  EXPECT_THAT(whole.pieces, ElementsAre("x", ".", "x", ""));
  rules.min_tokens = 1;
  EXPECT_EQ(read(rules, tokens, false).text, "x");
  rules.min_tokens = 6;
  EXPECT_EQ(read(rules, tokens, false).text, "x.x.x.");
}

TEST_F(ChoiceTexts, TheStopStringThatEndedItIsKnown) {
  TextRules rules = this->rules();
  rules.stop = {"z", "c", "bc"};
  const Whole whole = read(rules, ids("a bc d"), false);
  EXPECT_EQ(whole.text, "a ");
  EXPECT_EQ(whole.stop, 2U);
  EXPECT_EQ(read(rules, ids("a"), false).stop, std::nullopt);
}

TEST_F(ChoiceTexts, StopStringMayBeginBeforeMinTokensAndEndAfter) {
  const std::vector<std::int32_t> tokens = ids("x.x.x.");
  TextRules rules = this->rules();
  rules.stop = {".x."};
  rules.min_tokens = 3;
  const Whole across = read(rules, tokens, false);
  EXPECT_EQ(across.text, "x");
  EXPECT_THAT(across.pieces, ElementsAre("x", "", "", ""));
  // The first one completes with token four, and is ignored; the next one shares its point.
  rules.min_tokens = 4;
  const Whole overlapping = read(rules, tokens, false);
  EXPECT_EQ(overlapping.text, "x.x");
  EXPECT_THAT(overlapping.pieces, ElementsAre("x", "", "", ".x", "", ""));
  rules.include_stop = true;
  EXPECT_EQ(read(rules, tokens, false).text, "x.x.x.");
}

TEST_F(ChoiceTexts, TokenThatEndsAChoiceIsATokenWithoutText) {
  std::vector<std::int32_t> tokens = ids("x.x");
  tokens.push_back(end_);
  const Whole whole = read(rules(), tokens, true);
  EXPECT_EQ(whole.text, "x.x");
  EXPECT_EQ(whole.tokens, tokens);
  EXPECT_THAT(whole.offsets, ElementsAre(0, 1, 2, 3));
  TextRules including = rules();
  including.include_stop = true;
  EXPECT_EQ(read(including, tokens, true).text, "x.x") << "special tokens are in no text";
}

TEST_F(ChoiceTexts, StopTokenOfPlainTextIsShownWhereStopsAre) {
  const std::vector<std::int32_t> tokens = ids("x.");
  ASSERT_EQ(tokens.size(), 2U);
  TextRules rules = this->rules();
  rules.ends = {tokens[1]};
  const Whole hidden = read(rules, tokens, true);
  EXPECT_EQ(hidden.text, "x");
  EXPECT_EQ(hidden.tokens, tokens);
  rules.include_stop = true;
  const Whole shown = read(rules, tokens, true);
  EXPECT_EQ(shown.text, "x.");
  EXPECT_EQ(shown.tokens, tokens);
}

TEST_F(ChoiceTexts, TokensOfAStopStringStayWithTheAnswer) {
  const std::vector<std::int32_t> tokens = ids("x.x.x.");
  TextRules rules = this->rules();
  rules.stop = {".x"};
  const Whole whole = read(rules, tokens, false);
  EXPECT_EQ(whole.text, "x");
  EXPECT_EQ(whole.tokens, std::vector(tokens.begin(), tokens.begin() + 3));
  EXPECT_THAT(whole.offsets, ElementsAre(0, 1, 2));
}

TEST_F(ChoiceTexts, OffsetsCountSpecialTokensAsTheyAreWritten) {
  std::vector<std::int32_t> tokens = ids("x");
  tokens.push_back(*tokenizer_.id_of("<|start_header_id|>"));
  for (const std::int32_t id : ids("x")) tokens.push_back(id);
  tokens.push_back(end_);
  const Whole whole = read(rules(), tokens, true);
  EXPECT_EQ(whole.text, "xx");
  // <|start_header_id|> has 19 characters.
  EXPECT_THAT(whole.offsets, ElementsAre(0, 1, 20, 21));
}

TEST_F(ChoiceTexts, SpecialTokensAreShownWithAndWithoutTheDecodersSpaces) {
  // Its decoder writes a space between all tokens.
  const auto tokenizer = text::Tokenizer::load(MOTLEY_TOKENIZERS "/mixed_words").value();
  const std::int32_t left = *tokenizer.id_of("<left>");
  const std::int32_t right = *tokenizer.id_of("<right>");
  const std::int32_t line = *tokenizer.id_of("\n");
  const std::vector<std::int32_t> tokens = {left, right, line, left, right};
  TextRules rules{.tokenizer = &tokenizer};
  EXPECT_EQ(read(rules, tokens, false).text, "\n");
  rules.skip_special = false;
  EXPECT_EQ(read(rules, tokens, false).text, "<left> <right> \n <left> <right>");
  rules.spaces_between_special = false;
  EXPECT_EQ(read(rules, tokens, false).text, "<left><right> \n <left><right>");
  rules.ends = {right};
  rules.include_stop = true;
  EXPECT_EQ(read(rules, {left, right}, true).text, "<left><right>");
  rules.skip_special = true;
  EXPECT_EQ(read(rules, {left, right}, true).text, "");
}

// The offset of a token within a character is that of the character.
TEST_F(ChoiceTexts, OffsetsCountWholeCharacters) {
  std::vector<std::int32_t> tokens = ids("\U0001F9FFx");
  ASSERT_GT(tokens.size(), 2U) << "the character is several tokens";
  tokens.push_back(end_);
  const Whole whole = read(rules(), tokens, true);
  std::vector<std::int64_t> wanted(tokens.size() - 2, 0);
  wanted.push_back(1);
  wanted.push_back(2);
  EXPECT_EQ(whole.offsets, wanted);
}

}  // namespace
}  // namespace motley::serving
