#pragma once

#include <string_view>

#include "base/json/json.h"
#include "base/result.h"
#include "grammar/spec.h"

// Limits of a request's grammar. They are checked before anything is compiled, in time proportional
// to its text, so that the compiler's input is bounded.
namespace motley::grammar {

namespace grammar_limits {

inline constexpr std::size_t text_bytes = std::size_t{256} << 10;
inline constexpr int schema_depth = 64;
// Schemas after every $ref is replaced by its target; a recursive one counts once.
inline constexpr std::int64_t schema_parts = 50'000;
inline constexpr int schema_chain = 256;  // levels of nested schemas
inline constexpr int group_depth = 400;
// Levels of repeated groups within repeated groups: each multiplies the ways to parse a text.
inline constexpr int repeat_depth = 16;
inline constexpr std::int64_t repeats = 100'000;           // of one count
inline constexpr std::int64_t nested_repeats = 1'000'000;  // product of nested counts
// Repetitions of a character class ([a-z], ., \w) that a pattern expands, with counts multiplied:
// in each of these states many tokens of the vocabulary are tried.
inline constexpr std::int64_t class_characters = 400;
inline constexpr std::int64_t least_length = 200;  // of minLength, which is expanded, too

}  // namespace grammar_limits

Result<void> check(const Spec& spec);

// The individual checks. `where` names the text in messages.
Result<void> check_schema(std::string_view text, std::string_view where);
Result<void> check_schema_value(const json::Value& schema, std::string_view where);
Result<void> check_structural_tag(std::string_view text, std::string_view where);
Result<void> check_regex(std::string_view pattern, std::string_view where);
Result<void> check_ebnf(std::string_view text, std::string_view where);

// Checks a repeat count of a schema or a pattern.
Result<void> check_repeats(std::int64_t count, std::string_view where);

}  // namespace motley::grammar
