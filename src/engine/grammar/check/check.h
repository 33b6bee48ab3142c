#pragma once

#include <string_view>

#include "base/json/json.h"
#include "base/result.h"
#include "engine/sampling/sampling_params.h"

// What a request's grammar may ask for at most. Checked before anything is compiled, in time that
// grows with its text only, so that what reaches the compiler is bounded.
namespace motley::engine {

namespace grammar_limits {

inline constexpr std::size_t text_bytes = std::size_t{256} << 10;
inline constexpr int schema_depth = 64;
// Of a schema after every $ref is replaced by what it names; one that recurs counts once.
inline constexpr std::int64_t schema_parts = 50'000;
inline constexpr int schema_chain = 256;  // schemas within schemas
inline constexpr int group_depth = 400;
// Of groups that repeat within groups that repeat: each level multiplies the ways to read a text.
inline constexpr int repeat_depth = 16;
inline constexpr std::int64_t repeats = 100'000;           // of one count
inline constexpr std::int64_t nested_repeats = 1'000'000;  // product of counts within counts
// Characters out of a class ([a-z], ., \w) that a pattern writes out, counts multiplied: each is a
// state in which many tokens of the vocabulary are tried.
inline constexpr std::int64_t class_characters = 400;
inline constexpr std::int64_t least_length = 200;  // minLength, which is written out, too

}  // namespace grammar_limits

Result<void> check_grammar(const GrammarSpec& spec);

// The parts of it. `where` is what messages call the text.
Result<void> check_schema(std::string_view text, std::string_view where);
Result<void> check_schema_value(const json::Value& schema, std::string_view where);
Result<void> check_structural_tag(std::string_view text, std::string_view where);
Result<void> check_regex(std::string_view pattern, std::string_view where);
Result<void> check_ebnf(std::string_view text, std::string_view where);

// A count that a schema or a pattern repeats something by.
Result<void> check_repeats(std::int64_t count, std::string_view where);

}  // namespace motley::engine
