#include "text/regex/automaton.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <utility>

namespace motley::text::regex {
namespace {

// Limit of the table, and of states while it is built.
constexpr std::size_t max_entries = std::size_t{1} << 17;
constexpr std::size_t max_visits = 4'000'000;

// Builds the table: each row is a list of states that wait for a character, in order of preference.
class TableBuilder {
 public:
  TableBuilder(std::span<const State> states, const Alphabet& alphabet, std::uint32_t match_bit)
      : states_(states),
        alphabet_(alphabet),
        match_bit_(match_bit),
        row_length_(alphabet.classes() + 1),
        seen_(states.size()) {}

  // False if it grows too large.
  bool build(std::uint32_t first) {
    row_of({});  // row 0: nowhere
    row_of({first});
    for (std::size_t row = 1; row < rows_.size(); ++row) {
      if (rows_.size() * row_length_ > max_entries) return false;
      for (std::uint32_t a_class = 0; a_class < row_length_; ++a_class) {
        const std::vector<std::uint32_t> waiting = rows_[row];
        const std::uint32_t entry = follow(waiting, a_class);
        table_.resize(rows_.size() * row_length_);
        table_[row * row_length_ + a_class] = entry;
        if (visits_ > max_visits) return false;
      }
    }
    return true;
  }

  std::vector<std::uint32_t> take() { return std::move(table_); }

 private:
  std::uint32_t row_of(const std::vector<std::uint32_t>& waiting) {
    const auto [place, fresh] =
        numbers_.try_emplace(waiting, static_cast<std::uint32_t>(rows_.size()) * row_length_);
    if (fresh) rows_.push_back(waiting);
    return place->second;
  }

  bool holds(const State& peek, std::uint32_t a_class) const {
    if (a_class == alphabet_.classes()) return peek.at_end;
    return (alphabet_.row(peek.set)[a_class] != 0) != peek.negated;
  }

  // The states after a character of a class, or the end: choices in order, up to the first that
  // leads to a match.
  std::uint32_t follow(const std::vector<std::uint32_t>& waiting, std::uint32_t a_class) {
    ++round_;
    std::uint32_t matched = 0;
    std::vector<std::uint32_t> after;
    std::vector<std::uint32_t> pending(waiting.rbegin(), waiting.rend());
    while (!pending.empty()) {
      const std::uint32_t at = pending.back();
      pending.pop_back();
      if (std::exchange(seen_[at], round_) == round_) continue;
      ++visits_;
      const State& state = states_[at];
      if (state.kind == StateKind::match) {
        matched = match_bit_;
        break;
      }
      switch (state.kind) {
        case StateKind::set:
          if (a_class != alphabet_.classes() && alphabet_.row(state.set)[a_class] != 0 &&
              std::find(after.begin(), after.end(), state.next[0]) == after.end())
            after.push_back(state.next[0]);
          break;
        case StateKind::peek:
          if (holds(state, a_class)) pending.push_back(state.next[0]);
          break;
        case StateKind::split:
          pending.insert(pending.end(), state.next.rbegin(), state.next.rend());
          break;
        case StateKind::match:
          break;
      }
    }
    return row_of(after) | matched;
  }

  std::span<const State> states_;
  const Alphabet& alphabet_;
  const std::uint32_t match_bit_;
  const std::uint32_t row_length_;
  std::vector<std::uint32_t> seen_;  // the round in which a state was last visited
  std::uint32_t round_ = 0;
  std::size_t visits_ = 0;
  std::vector<std::vector<std::uint32_t>> rows_;
  std::map<std::vector<std::uint32_t>, std::uint32_t> numbers_;
  std::vector<std::uint32_t> table_;
};

}  // namespace

std::optional<Automaton> Automaton::build(const States& states, const Alphabet& alphabet) {
  TableBuilder table(states.list, alphabet, match_bit);
  if (!table.build(states.start)) return std::nullopt;
  Automaton automaton;
  automaton.row_length_ = alphabet.classes() + 1;
  automaton.start_ = automaton.row_length_;
  automaton.table_ = table.take();
  return automaton;
}

Automaton::Found Automaton::find(const Alphabet& alphabet, std::string_view text, std::size_t from,
                                 std::size_t max_steps) const {
  const auto* const begin = reinterpret_cast<const unsigned char*>(text.data());
  const unsigned char* const end = begin + text.size();
  const std::uint32_t* const table = table_.data();
  const auto place = [begin](const unsigned char* at) {
    return static_cast<std::size_t>(at - begin);
  };
  std::size_t steps = 0;
  for (const unsigned char* start = begin + from;;) {
    const unsigned char* at = start;
    const unsigned char* match = nullptr;
    std::uint32_t row = start_;
    while (at < end) {
      std::uint32_t a_class = 0;
      const unsigned char* next = at + 1;
      if (*at < 0x80) {
        a_class = alphabet.ascii_class(*at);
      } else {
        const Character character = character_at(at);
        a_class = alphabet.class_of(character.code_point);
        next = at + character.length;
      }
      const std::uint32_t entry = table[row + a_class];
      if ((entry & match_bit) != 0) match = at;
      row = entry & ~match_bit;
      if (row == 0) break;
      at = next;
    }
    if (at == end && (table[row + row_length_ - 1] & match_bit) != 0) match = end;
    steps += place(at) - place(start) + 1;
    if (match != nullptr)
      return {.match = Span{.begin = place(start), .end = place(match)}, .steps = steps};
    if (start == end || steps > max_steps) return {.steps = steps};
    start += character_at(start).length;
  }
}

}  // namespace motley::text::regex
