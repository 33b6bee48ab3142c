#include "text/regex/regex.h"

#include <algorithm>
#include <string>
#include <utility>

#include "text/regex/alphabet.h"
#include "text/regex/automaton.h"
#include "text/regex/backtracker.h"
#include "text/regex/parser.h"
#include "text/regex/program.h"

namespace motley::text {
namespace {

// Limit of steps for all searches of a text: a constant, plus a number for each of its bytes.
constexpr std::size_t steps = 16'000'000;
constexpr std::size_t steps_per_byte = 128;

// More sets than any reasonable pattern has: each literal character is a set.
constexpr std::size_t max_sets = 2'000;

}  // namespace

struct Regex::Program {
  regex::Program code;
  regex::Alphabet alphabet;
  std::optional<regex::Automaton> automaton;
};

Regex::Regex(std::unique_ptr<const Program> program) : program_(std::move(program)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Result<Regex> Regex::compile(std::string_view pattern, std::string_view where, Engine engine) {
  MOTLEY_TRY(const regex::Node tree, regex::parse(pattern, where));
  regex::SetList sets;
  MOTLEY_TRY(regex::Program code, regex::compile_program(tree, sets, where));
  const std::optional<regex::States> states = regex::states_of(tree, sets);
  if (sets.sets().size() > max_sets) {
    return Error(ErrorCode::unsupported, "the regular expression has too many different characters",
                 std::string(where), "write ranges or properties instead");
  }
  regex::Alphabet alphabet(sets.sets());
  std::optional<regex::Automaton> automaton;
  if (states.has_value() && engine == Engine::table_if_possible)
    automaton = regex::Automaton::build(*states, alphabet);
  return Regex(std::make_unique<const Program>(Program{.code = std::move(code),
                                                       .alphabet = std::move(alphabet),
                                                       .automaton = std::move(automaton)}));
}

Result<std::optional<Span>> Regex::find(std::string_view text, std::size_t from,
                                        std::size_t& spent) const {
  const std::size_t most = steps + steps_per_byte * text.size();
  if (program_->automaton.has_value()) {
    const regex::Automaton::Found found =
        program_->automaton->find(program_->alphabet, text, from, most - spent);
    spent += found.steps;
    if (spent > most) return regex::too_many_steps();
    return found.match;
  }
  std::size_t taken = 0;
  auto match =
      regex::backtrack(program_->code, program_->alphabet, text, from, most - spent, taken);
  spent = std::min(spent + taken, most);
  return match;
}

}  // namespace motley::text
