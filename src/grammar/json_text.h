#pragma once

#include <string>
#include <string_view>

namespace motley::grammar {

// The limit of white space between two tokens that XGrammar's converters are given. They write it
// as a count after the name of a rule, which with_bounded_json() recognises.
inline constexpr int whitespace_mark = 9'999;

// A grammar of JSON whose answers end: what a schema leaves without a bound that no value needs.
// `ebnf` is what XGrammar prints of a grammar that it made with whitespace_mark, or with none.
//  - Between two tokens stand nothing, one blank, or up to two line breaks and an indentation of at
//    most 20; at most a blank before a comma or a colon.
//  - Numbers have at most 24 digits before and behind the point, and 3 in the exponent: what any
//    double and any integer of 64 bits need.
// And strings of bounded length hold no raw control characters, which JSON does not allow.
std::string with_bounded_json(std::string_view ebnf);

}  // namespace motley::grammar
