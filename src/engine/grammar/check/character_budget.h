#pragma once

#include <string>

namespace motley::engine {

// A grammar of JSON that strings of bounded length don't make large. XGrammar writes a bound out as
// one state for each character, and tries all tokens of the vocabulary in each; a rule with a
// budget of characters counts instead while the text is followed. `ebnf` is what XGrammar prints of
// a grammar. Only strings in quotes are changed: their end may always come, so that the budget is
// never stretched.
std::string with_character_budgets(const std::string& ebnf);

}  // namespace motley::engine
