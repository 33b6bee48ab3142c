#pragma once

#include <string>

namespace motley::grammar {

// Rewrites a grammar of JSON so that strings of bounded length do not make it large. XGrammar
// expands a bound into one state for each character, and tries all tokens of the vocabulary in
// each; a rule with a character budget counts at run time instead. `ebnf` is a grammar as printed
// by XGrammar. Only quoted strings are changed: a closing quote may come at any time, so the budget
// cannot trap a text.
std::string with_character_budgets(const std::string& ebnf);

}  // namespace motley::grammar
