#include "grammar/grammar.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "grammar/vocabulary.h"

namespace motley::grammar {
namespace {

using testing::HasSubstr;
using Kind = Spec::Kind;

constexpr std::int32_t end_id = 256;
constexpr std::int32_t control_id = 257;
constexpr std::int32_t first_word = 258;
constexpr std::int64_t width = 300;

// Single bytes, an end token, a control token that looks like letters, and a few words.
Vocabulary vocabulary() {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  bytes.insert(bytes.end(), {"", "", "{\"", "\":", "true", "ab", "\xC3", "}"});
  return Vocabulary::create({.bytes = bytes, .width = width, .end_ids = {end_id}}).value();
}

class Following {
 public:
  Following(Kind kind, std::string text, bool any_whitespace = true)
      : state_(Grammar::compile(
                   {.kind = kind, .text = std::move(text), .any_whitespace = any_whitespace},
                   vocabulary())
                   .value(),
               {}) {}

  bool may(std::int32_t token) {
    std::array<std::uint32_t, (width + 31) / 32> mask{};
    state_.fill_mask(mask);
    return ((mask[static_cast<std::size_t>(token) / 32] >> (token % 32)) & 1U) != 0;
  }
  // Whether the bytes are allowed one after the other; the state takes the leading ones that are.
  bool take(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [&](char byte) {
      const auto token = static_cast<std::int32_t>(static_cast<unsigned char>(byte));
      const bool allowed = may(token);
      EXPECT_EQ(state_.accept(token), allowed) << "mask and state agree at " << byte;
      return allowed;
    });
  }
  Position& state() { return state_; }

 private:
  Position state_;
};

TEST(Grammar, FollowsJsonSchema) {
  Following following(Kind::json_schema, R"({"type": "object", "properties":
      {"a": {"type": "boolean"}, "b": {"type": "integer", "minimum": 3, "maximum": 12}},
      "required": ["a", "b"], "additionalProperties": false})");
  EXPECT_FALSE(following.may(end_id));
  EXPECT_TRUE(following.take(R"({"a": true, "b": 1)"));
  EXPECT_FALSE(following.take("3"));
  EXPECT_FALSE(following.state().may_end());
  EXPECT_TRUE(following.take("2}"));
  EXPECT_TRUE(following.state().may_end());
  EXPECT_TRUE(following.may(end_id));
  EXPECT_FALSE(following.state().ended());
  EXPECT_TRUE(following.state().accept(end_id));
  EXPECT_TRUE(following.state().ended());
}

// Including lengths beyond those that are expanded into states.
TEST(Grammar, CountsTheCharactersOfStrings) {
  for (const int most : {3, 6, 300}) {
    Following following(Kind::json_schema,
                        cat(R"({"type": "object", "properties": {"a": {"type": "string",
        "minLength": 2, "maxLength": )",
                            most, R"(}, "b": {"type": "array", "items":
        {"type": "string", "maxLength": )",
                            most, R"(}}}, "required": ["a", "b"]})"));
    EXPECT_TRUE(following.take(R"({"a": "x)"));
    EXPECT_FALSE(following.may('"')) << "too short";
    for (int i = 2; i < most; ++i) EXPECT_TRUE(following.take("é"));
    EXPECT_TRUE(following.may('"'));
    Position other = following.state().fork();
    EXPECT_TRUE(following.take("é"));
    following.state().rollback(2);
    EXPECT_TRUE(following.take("z"));
    EXPECT_FALSE(following.may('z')) << "too long";
    EXPECT_FALSE(following.may(first_word + 3)) << "ab";
    EXPECT_TRUE(other.accept('y'));
    EXPECT_FALSE(other.accept('y'));
    EXPECT_TRUE(following.take(R"(", "b": ["", ")"));
    EXPECT_TRUE(following.take(std::string(static_cast<std::size_t>(most), 'y')));
    EXPECT_FALSE(following.may('y'));
    EXPECT_TRUE(following.take("\"]}"));
    EXPECT_TRUE(following.may(end_id));
  }
}

TEST(Grammar, BoundedStringsTakeNoStatesForTheirCharacters) {
  const auto bytes = [](int most) {
    const Spec spec{.kind = Kind::json_schema,
                    .text = cat(R"({"type": "string", "maxLength": )", most, "}")};
    return Grammar::compile(spec, vocabulary()).value().bytes();
  };
  EXPECT_EQ(bytes(20), bytes(20'000));
}

TEST(Grammar, FollowsAnyJsonObject) {
  Following following(Kind::json_object, "");
  EXPECT_FALSE(following.may('['));
  EXPECT_TRUE(following.may(first_word));
  EXPECT_TRUE(following.state().accept(first_word));
  EXPECT_TRUE(following.take(R"(x": [1, {"y": null}]})"));
  EXPECT_TRUE(following.may(end_id));
}

// Usual pretty-printing is allowed, unlimited blanks are not.
TEST(Grammar, BoundsWhiteSpace) {
  constexpr std::string_view schema = R"({"type": "object", "properties": {"a": {"type": "array",
      "items": {"type": "integer"}}, "b": {}}, "required": ["a", "b"]})";
  const std::string tag = cat(R"({"type": "structural_tag", "format": {"type": "json_schema",
      "json_schema": )",
                              schema, "}}");
  for (const auto& [kind, text] :
       {std::pair(Kind::json_schema, std::string(schema)), std::pair(Kind::structural_tag, tag),
        std::pair(Kind::json_object, std::string())}) {
    Following pretty(kind, text);
    EXPECT_TRUE(
        pretty.take("{\n    \"a\": [\r\n                    1,\n\t\t2\n  ],\n\n  \"b\": {\n"));
    EXPECT_TRUE(pretty.take("  \"c\" : null }\n}"));
    EXPECT_TRUE(pretty.may(end_id));
    for (const std::string_view run :
         {"  ", "\n\n\n", "\n                     ", " \n", "\"a\"\n", "\"a\"  ", "\"a\":  ", "\t",
          "\"a\": [1 \n", "\"a\": [1,  "}) {
      Following running(kind, text);
      EXPECT_TRUE(running.take("{"));
      EXPECT_TRUE(running.take(run.substr(0, run.size() - 1)));
      EXPECT_FALSE(running.take(run.substr(run.size() - 1))) << run;
    }
    Following compact(kind, text, false);
    EXPECT_FALSE(compact.may(' '));
    EXPECT_TRUE(compact.take(R"({"a": [1, 2], "b": {"c": null}})"));
    EXPECT_TRUE(compact.may(end_id));
  }
}

TEST(Grammar, BoundsWhiteSpaceOfParameters) {
  for (const std::string_view style : {"qwen_xml", "glm_xml"}) {
    Following following(Kind::structural_tag,
                        cat(R"({"type": "structural_tag", "format": {"type":
        "json_schema", "style": ")",
                            style, R"(", "json_schema": {"type": "object", "properties":
        {"a": {"type": "integer"}}, "required": ["a"]}}})"));
    const bool qwen = style == "qwen_xml";
    EXPECT_TRUE(following.take(qwen ? "<parameter=a>\n" : "<arg_key>a</arg_key>\n<arg_value>"));
    EXPECT_TRUE(following.take("12"));
    EXPECT_TRUE(following.take("\n                    "));
    EXPECT_FALSE(following.may(' '));
    EXPECT_TRUE(following.take(qwen ? "</parameter>" : "</arg_value>"));
  }
}

// Unquoted values, for which the compiler expands patterns differently.
TEST(Grammar, FollowsFormatsInParameters) {
  constexpr std::string_view tag = R"({"type": "structural_tag", "format": {"type": "json_schema",
      "style": "qwen_xml", "json_schema": {"type": "object", "properties": {
        "a": {"type": "string", "format": "date-time"},
        "b": {"type": "array", "items": {"type": "string", "format": "date-time"}, "minItems": 1}},
      "required": ["a", "b"]}}})";
  constexpr std::string_view begin = "<parameter=a>\n";
  constexpr std::string_view between = "\n</parameter>\n<parameter=b>\n[\"";
  Following right(Kind::structural_tag, std::string(tag));
  EXPECT_TRUE(right.take(cat(begin, "2024-02-29T23:59:59.5Z", between, "0001-12-31T00:00:00+01:00",
                             "\"]\n</parameter>")));
  EXPECT_TRUE(right.may(end_id));
  for (const std::string_view wrong : {"2023-02-29T00:00:00Z", "2024-01-01T00:00:005"}) {
    EXPECT_FALSE(Following(Kind::structural_tag, std::string(tag)).take(cat(begin, wrong)))
        << wrong;
    Following inside(Kind::structural_tag, std::string(tag));
    EXPECT_TRUE(inside.take(cat(begin, "2024-02-29T23:59:59Z", between)));
    EXPECT_FALSE(inside.take(wrong)) << wrong;
  }
}

TEST(Grammar, BoundsDigits) {
  const auto digits = [](int count) { return std::string(static_cast<std::size_t>(count), '7'); };
  for (const std::string_view schema :
       {R"({"type": "integer"})", R"({"type": "integer", "minimum": 5})", R"({"type": "number"})",
        R"({"type": "number", "minimum": 5})", "{}"}) {
    Following following(Kind::json_schema, std::string(schema));
    EXPECT_TRUE(following.take(digits(20))) << schema;
    EXPECT_FALSE(following.take(digits(10))) << schema;
    EXPECT_TRUE(following.may(end_id));
  }
  Following number(Kind::json_schema, R"({"type": "number"})");
  EXPECT_TRUE(number.take(cat("-1.", digits(24))));
  EXPECT_FALSE(number.may('7'));
  EXPECT_TRUE(number.take("e-308"));
  EXPECT_FALSE(number.may('7'));
  EXPECT_TRUE(number.may(end_id));
  Following time(Kind::json_schema, R"({"type": "string", "format": "date-time"})");
  EXPECT_TRUE(time.take(cat("\"2026-01-02T03:04:05.", digits(9))));
  EXPECT_FALSE(time.take(digits(30)));
}

TEST(Grammar, LeavesPatternsOfClientsAlone) {
  Following following(Kind::json_schema,
                      R"({"type": "string", "pattern": "^[ \\n\\r\\t]*[0-9]+$"})");
  EXPECT_TRUE(following.take(cat('"', std::string(30, ' '), std::string(30, '7'), '"')));
}

TEST(Grammar, WritesWhatAParserReads) {
  Following text(Kind::json_schema, R"({"type": "string", "maxLength": 9})");
  EXPECT_TRUE(text.take("\""));
  EXPECT_FALSE(text.may('\t')) << "no raw control character";
  Following number(Kind::json_schema, R"({"enum": [0.1, "0.10000000000000001"]})");
  EXPECT_TRUE(number.take("0.1"));
  EXPECT_TRUE(number.may(end_id));
  Following string(Kind::json_schema, R"({"enum": [0.1, "0.10000000000000001"]})");
  EXPECT_TRUE(string.take(R"("0.10000000000000001")"));
}

TEST(Grammar, FollowsRegexAndGrammar) {
  Following regex(Kind::regex, "(ab|cd){2}[0-9]+");
  EXPECT_TRUE(regex.take("abcd7"));
  EXPECT_TRUE(regex.may(end_id));
  EXPECT_FALSE(regex.take("a"));
  Following grammar(Kind::ebnf, "root ::= \"x\" root \"y\" | \"z\"");
  EXPECT_TRUE(grammar.take("xxzyy"));
  EXPECT_TRUE(grammar.may(end_id));
  EXPECT_FALSE(grammar.may('y'));
}

TEST(Grammar, NeverUsesTokensOfControlNorPlacesWithoutOne) {
  Following following(Kind::regex, "[a-z ]*");
  EXPECT_FALSE(following.may(control_id));
  EXPECT_FALSE(following.may(299));
  EXPECT_FALSE(following.state().accept(control_id));
  EXPECT_TRUE(following.may(first_word + 3));  // "ab"
}

TEST(Grammar, CutsCharactersAcrossTokens) {
  Following following(Kind::regex, "é+");
  EXPECT_TRUE(following.state().accept(first_word + 4));
  EXPECT_FALSE(following.may(end_id)) << "in the middle of a character";
  EXPECT_TRUE(following.take("\xA9"));
  EXPECT_TRUE(following.may(end_id));
}

TEST(Grammar, GoesBackAndForksWithoutTouchingTheOther) {
  Following following(Kind::regex, "ab+c");
  EXPECT_TRUE(following.take("ab"));
  Position other = following.state().fork();
  EXPECT_TRUE(other.accept('c'));
  EXPECT_TRUE(other.may_end());
  EXPECT_FALSE(following.state().may_end());
  following.state().rollback(1);
  EXPECT_FALSE(following.may('c'));
  EXPECT_TRUE(following.take("bbc"));
}

TEST(Grammar, EndsWithTheTokensThatARequestNames) {
  const Grammar grammar =
      Grammar::compile({.kind = Kind::regex, .text = "a"}, vocabulary()).value();
  Position state(grammar, {7, end_id});
  ASSERT_TRUE(state.accept('a'));
  EXPECT_TRUE(state.accept(7));
  EXPECT_TRUE(state.ended());
}

TEST(Grammar, RefusesWhatItCouldNotFollow) {
  const auto error = [](Kind kind, std::string text) {
    const auto grammar = Grammar::compile({.kind = kind, .text = std::move(text)}, vocabulary());
    return grammar.ok() ? "compiled" : grammar.error().message();
  };
  EXPECT_THAT(error(Kind::regex, "a^b"), HasSubstr("ignored"));
  EXPECT_THAT(error(Kind::json_schema, R"({"type": "integer", "minimum": 3, "maximum": 2})"),
              HasSubstr("no value satisfies"));
  EXPECT_THAT(error(Kind::regex, "(?=a)b"), HasSubstr("ookahead"));
  EXPECT_THAT(error(Kind::regex, "(a"), HasSubstr("can't follow it"));
  EXPECT_THAT(error(Kind::regex, "(a"), Not(HasSubstr(".cc")));
  EXPECT_THAT(error(Kind::ebnf, "root ::= missing"), HasSubstr("missing"));
  EXPECT_THAT(error(Kind::ebnf, ""), HasSubstr("can't follow it"));
}

TEST(Grammar, ReadsTokensOfAModel) {
  const text::Tokenizer tokenizer =
      text::Tokenizer::parse(R"({"version": "1.0", "added_tokens": [{"id": 3, "content": "ab",
          "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
          "special": true}], "normalizer": null, "pre_tokenizer": null, "post_processor": null,
          "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE",
          "vocab": {"Ġa": 0, "b": 1, "c": 2}, "merges": []}})",
                             "tokenizer.json")
          .value();
  const Vocabulary tokens = Vocabulary::create(grammar_tokens(tokenizer, 40, {2})).value();
  Position state(Grammar::compile({.kind = Kind::regex, .text = " a[a-z]+"}, tokens).value(), {});
  std::array<std::uint32_t, 2> mask{};
  state.fill_mask(mask);
  EXPECT_EQ(mask[0], 0b0001U);
  ASSERT_TRUE(state.accept(0));
  state.fill_mask(mask);
  EXPECT_EQ(mask[0], 0b0010U) << "neither the special token nor the end";
  ASSERT_TRUE(state.accept(1));
  state.fill_mask(mask);
  EXPECT_EQ(mask[0], 0b0110U);
  EXPECT_EQ(mask[1] & 0xFFU, 0U) << "ids that no token has";

  const auto first_mask = [&](Spec::Kind kind, std::string text) {
    Position fresh(Grammar::compile({.kind = kind, .text = std::move(text)}, tokens).value(), {});
    fresh.fill_mask(mask);
    return mask[0];
  };
  EXPECT_EQ(first_mask(Kind::regex, ".*"), 0b0111U);
  EXPECT_EQ(first_mask(Kind::ebnf, "root ::= [^x]*"), 0b0111U);
  EXPECT_EQ(first_mask(Kind::structural_tag, R"({"type": "structural_tag", "format":
                                                 {"type": "token", "token": 3}})"),
            0b1000U)
      << "special tokens where they are named";
}

TEST(Grammar, RefusesATokenizerLargerThanTheModel) {
  EXPECT_FALSE(Vocabulary::create({.bytes = {"a", "b", "c"}, .width = 2, .end_ids = {}}).ok());
}

}  // namespace
}  // namespace motley::grammar
