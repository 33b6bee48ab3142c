#include "text/regex/backtracker.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/error.h"

namespace motley::text::regex {
namespace {

using Place = const unsigned char*;

// An alternative to try when a match fails.
enum class ChoiceKind : std::uint8_t {
  resume,     // continue at `at` from instruction `index`
  give_back,  // end repeat `index` a character earlier, but not before `limit`
  take_more,  // extend lazy repeat `index` by a character, at most `limit` times
  go_back,    // begin look-behind `index` a character earlier, at most `limit` times
  restore,    // set slot `index` to `limit`
};

struct Choice {
  ChoiceKind kind = ChoiceKind::resume;
  std::uint32_t index = 0;
  Place at = nullptr;
  std::uint64_t limit = 0;
};

// The most choices at once: 96 MiB.
constexpr std::size_t max_choices = std::size_t{1} << 22;

// A stack whose first elements need no allocation.
class ChoiceStack {
 public:
  ChoiceStack() = default;
  ChoiceStack(const ChoiceStack&) = delete;
  ChoiceStack& operator=(const ChoiceStack&) = delete;

  std::size_t size() const { return size_; }
  void cut(std::size_t size) { size_ = size; }
  Choice& top() { return data_[size_ - 1]; }
  void pop() { --size_; }

  // False if there are too many.
  bool push(const Choice& choice) {
    if (size_ == capacity_) [[unlikely]] {
      if (!grow()) return false;
    }
    data_[size_++] = choice;
    return true;
  }

 private:
  bool grow() {
    if (capacity_ >= max_choices) return false;
    std::vector<Choice> more(capacity_ * 2);
    std::copy_n(data_, size_, more.begin());
    many_ = std::move(more);
    data_ = many_.data();
    capacity_ = many_.size();
    return true;
  }

  std::array<Choice, 64> few_{};
  std::vector<Choice> many_;
  Choice* data_ = few_.data();
  std::size_t size_ = 0;
  std::size_t capacity_ = 64;
};

enum class Outcome : std::uint8_t { matched, failed, too_many_steps, too_many_choices };

class Backtracker {
 public:
  Backtracker(const Program& program, const Alphabet& alphabet, std::string_view text,
              std::size_t from, std::size_t max_steps)
      : program_(program),
        alphabet_(alphabet),
        begin_(reinterpret_cast<Place>(text.data())),
        end_(begin_ + text.size()),
        search_begin_(begin_ + from),
        max_steps_(max_steps) {
    if (program.slots > few_slots_.size()) many_slots_.resize(program.slots);
    slots_ = many_slots_.empty() ? few_slots_.data() : many_slots_.data();
  }

  Outcome search() {
    for (Place start = search_begin_;; start += character_at(start).length) {
      if (program_.first != no_row) {
        const std::uint8_t* row = alphabet_.row(program_.first);
        while (start < end_ && row[class_at(start)] == 0) start += character_at(start).length;
        if (start == end_) return Outcome::failed;
      }
      const Outcome outcome = match_at(start);
      if (outcome != Outcome::failed) return outcome;
      if (start == end_) return Outcome::failed;
    }
  }

  std::size_t steps() const { return steps_; }
  Span match() const {
    return {.begin = static_cast<std::size_t>(match_begin_ - begin_),
            .end = static_cast<std::size_t>(at_ - begin_)};
  }

 private:
  std::uint32_t class_at(Place at) const {
    if (*at < 0x80) return alphabet_.ascii_class(*at);
    return alphabet_.class_of(character_at(at).code_point);
  }

  bool is_in(std::uint32_t set, Place at) const { return alphabet_.row(set)[class_at(at)] != 0; }

  // Whether a character of the row begins here.
  bool may_begin(std::uint32_t row, Place at) const {
    return row == no_row || (at < end_ && is_in(row, at));
  }

  bool push(ChoiceKind kind, std::uint32_t index, Place at, std::uint64_t limit = 0) {
    return choices_.push({.kind = kind, .index = index, .at = at, .limit = limit});
  }

  bool set_slot(std::uint32_t slot, std::uint64_t value) {
    if (!push(ChoiceKind::restore, slot, nullptr, slots_[slot])) return false;
    slots_[slot] = value;
    return true;
  }

  std::uint64_t offset() const { return static_cast<std::uint64_t>(at_ - begin_); }

  Outcome match_at(Place start) {
    match_begin_ = start;
    at_ = start;
    next_ = 0;
    choices_.cut(0);
    for (;;) {
      if (++steps_ > max_steps_) [[unlikely]]
        return Outcome::too_many_steps;
      const Instruction& instruction = program_.code[next_];
      if (instruction.op == Op::match) return Outcome::matched;
      switch (step(instruction)) {
        case Step::on:
          break;
        case Step::full:
          return Outcome::too_many_choices;
        case Step::back:
          if (!go_back()) return Outcome::failed;
          break;
      }
    }
  }

  // The result of an instruction: continue at next_, backtrack, or out of memory.
  enum class Step : std::uint8_t { on, back, full };

  static Step on_if(bool pushed) { return pushed ? Step::on : Step::full; }

  Step step(const Instruction& instruction) {
    const std::uint32_t index = next_++;
    switch (instruction.op) {
      case Op::match:
        return Step::on;
        return Step::back;
      case Op::set:
        if (at_ == end_ || !is_in(instruction.set, at_)) return Step::back;
        at_ += character_at(at_).length;
        return Step::on;
      case Op::repeat_set:
        return repeat(instruction, index);
      case Op::jump:
        next_ = instruction.to;
        return Step::on;
      case Op::split:
      case Op::split_last:
        return split(instruction, index);
      case Op::loop_begin:
        return on_if(set_slot(instruction.slot, 0) && set_slot(instruction.slot + 1, offset()));
      case Op::loop_check:
        return check_loop(instruction, index);
      case Op::loop_enter:
        return on_if(set_slot(instruction.slot, slots_[instruction.slot] + 1) &&
                     set_slot(instruction.slot + 1, offset()));
      case Op::loop_end: {
        const bool empty = slots_[instruction.slot + 1] == offset();
        next_ = empty && !instruction.bounded ? instruction.min : instruction.to;
        return Step::on;
      }
      case Op::atomic_begin:
        return on_if(open(instruction.slot));
      case Op::atomic_end:
        choices_.cut(slots_[instruction.slot]);
        return Step::on;
      case Op::look_begin:
      case Op::behind_begin:
        return begin_look(instruction, index);
      case Op::behind_end:
        if (slots_[instruction.slot + 1] != offset()) return Step::back;
        return end_look(instruction);
      case Op::look_end:
        return end_look(instruction);
      case Op::peek:
        return (at_ < end_ && is_in(instruction.set, at_)) != instruction.negated ? Step::on
                                                                                  : Step::back;
      case Op::peek_behind:
        return (at_ > begin_ && is_in(instruction.set, character_before(at_))) !=
                       instruction.negated
                   ? Step::on
                   : Step::back;
      case Op::anchor:
        return holds(instruction) ? Step::on : Step::back;
    }
    return Step::back;
  }

  Step split(const Instruction& instruction, std::uint32_t index) {
    const bool next = may_begin(instruction.first_next, at_);
    const bool to = may_begin(instruction.first_to, at_);
    if (!next && !to) return Step::back;
    if (!next || !to) {
      if (to) next_ = instruction.to;
      return Step::on;
    }
    if (instruction.op == Op::split) return on_if(push(ChoiceKind::resume, instruction.to, at_));
    next_ = instruction.to;
    return on_if(push(ChoiceKind::resume, index + 1, at_));
  }

  Step repeat(const Instruction& instruction, std::uint32_t index) {
    const std::uint8_t* row = alphabet_.row(instruction.set);
    const bool lazy = instruction.greed == Greed::lazy;
    const std::uint32_t most = lazy ? instruction.min : instruction.max;
    Place at = at_;
    Place least = at_;
    std::uint32_t taken = 0;
    while (taken < most && at < end_ && row[class_at(at)] != 0) {
      at += character_at(at).length;
      if (++taken == instruction.min) least = at;
    }
    steps_ += taken;
    if (taken < instruction.min) return Step::back;
    at_ = at;
    if (lazy) {
      if (instruction.max == instruction.min) return Step::on;
      return on_if(push(ChoiceKind::take_more, index, at, instruction.max - instruction.min));
    }
    if (at == least || instruction.possessive) return Step::on;
    return on_if(
        push(ChoiceKind::give_back, index, at, static_cast<std::uint64_t>(least - begin_)));
  }

  Step check_loop(const Instruction& instruction, std::uint32_t index) {
    const std::uint64_t count = slots_[instruction.slot];
    if (count < instruction.min) return Step::on;
    if (instruction.max != unlimited && count >= instruction.max) {
      next_ = instruction.to;
      return Step::on;
    }
    if (instruction.greed == Greed::greedy)
      return on_if(push(ChoiceKind::resume, instruction.to, at_));
    next_ = instruction.to;
    return on_if(push(ChoiceKind::resume, index + 1, at_));
  }

  // Saves the number of open choices, so that later ones can be closed.
  bool open(std::uint32_t slot) { return set_slot(slot, choices_.size() + 1); }

  Step begin_look(const Instruction& instruction, std::uint32_t index) {
    if (!set_slot(instruction.slot + 1, offset()) || !open(instruction.slot)) return Step::full;
    if (instruction.negated && !push(ChoiceKind::resume, instruction.to, at_)) return Step::full;
    if (instruction.op == Op::look_begin) return Step::on;
    for (std::uint32_t i = 0; i < instruction.min; ++i) {
      if (at_ == begin_) return Step::back;
      at_ = character_before(at_);
    }
    steps_ += instruction.min;
    if (instruction.max == instruction.min) return Step::on;
    return on_if(push(ChoiceKind::go_back, index, at_, instruction.max - instruction.min));
  }

  Step end_look(const Instruction& instruction) {
    choices_.cut(slots_[instruction.slot]);
    if (instruction.negated) return Step::back;
    at_ = begin_ + slots_[instruction.slot + 1];
    return Step::on;
  }

  bool holds(const Instruction& instruction) const {
    switch (instruction.anchor) {
      case Anchor::text_begin:
        return at_ == begin_;
      case Anchor::text_end:
        return at_ == end_;
      case Anchor::last_line_end:
        return at_ == end_ || (at_ + 1 == end_ && *at_ == '\n');
      case Anchor::line_begin:
        return at_ == begin_ || (at_ != end_ && at_[-1] == '\n');
      case Anchor::line_end:
        return at_ == end_ || *at_ == '\n';
      case Anchor::search_begin:
        return at_ == search_begin_;
      case Anchor::word_border:
      case Anchor::no_word_border:
        break;
    }
    const bool before = at_ > begin_ && is_in(instruction.set, character_before(at_));
    const bool after = at_ < end_ && is_in(instruction.set, at_);
    return (before != after) == (instruction.anchor == Anchor::word_border);
  }

  // Takes the last choice; false if there is none.
  bool go_back() {
    for (; choices_.size() > 0; ++steps_) {
      Choice& choice = choices_.top();
      switch (choice.kind) {
        case ChoiceKind::restore:
          slots_[choice.index] = choice.limit;
          choices_.pop();
          break;
        case ChoiceKind::resume:
          next_ = choice.index;
          at_ = choice.at;
          choices_.pop();
          return true;
        case ChoiceKind::give_back:
          if (give_back(choice)) return true;
          break;
        case ChoiceKind::take_more:
          if (take_more(choice)) return true;
          break;
        case ChoiceKind::go_back: {
          at_ = character_before_or_null(choice.at);
          if (at_ == nullptr) {
            choices_.pop();
            break;
          }
          next_ = choice.index + 1;
          choice.at = at_;
          if (--choice.limit == 0) choices_.pop();
          return true;
        }
      }
    }
    return false;
  }

  Place character_before_or_null(Place at) const {
    return at == begin_ ? nullptr : character_before(at);
  }

  // Moves back to the last position before choice.at where the continuation may begin.
  bool give_back(Choice& choice) {
    const Instruction& instruction = program_.code[choice.index];
    const Place least = begin_ + choice.limit;
    Place at = choice.at;
    do {
      at = character_before(at);
      ++steps_;
    } while (at > least && !may_begin(instruction.first_next, at));
    const bool found = may_begin(instruction.first_next, at);
    const std::uint32_t index = choice.index;
    if (at == least)
      choices_.pop();
    else
      choice.at = at;
    at_ = at;
    next_ = index + 1;
    return found;
  }

  // Moves to the next position after choice.at where the continuation may begin.
  bool take_more(Choice& choice) {
    const Instruction& instruction = program_.code[choice.index];
    const std::uint8_t* row = alphabet_.row(instruction.set);
    do {
      ++steps_;
      if (choice.limit == 0 || choice.at == end_ || row[class_at(choice.at)] == 0) {
        choices_.pop();
        return false;
      }
      choice.at += character_at(choice.at).length;
      if (instruction.max != unlimited) --choice.limit;
    } while (!may_begin(instruction.first_next, choice.at));
    at_ = choice.at;
    next_ = choice.index + 1;
    return true;
  }

  const Program& program_;
  const Alphabet& alphabet_;
  const Place begin_;
  const Place end_;
  const Place search_begin_;
  const std::size_t max_steps_;
  std::size_t steps_ = 0;
  Place match_begin_ = nullptr;
  Place at_ = nullptr;
  std::uint32_t next_ = 0;
  std::array<std::uint64_t, 16> few_slots_{};
  std::vector<std::uint64_t> many_slots_;
  std::uint64_t* slots_;
  ChoiceStack choices_;
};

}  // namespace

Error too_many_steps() {
  return {ErrorCode::unsupported, "a regular expression takes too many steps on a text", "",
          "repeat less inside repeats, or split the text before"};
}

Result<std::optional<Span>> backtrack(const Program& program, const Alphabet& alphabet,
                                      std::string_view text, std::size_t from,
                                      std::size_t max_steps, std::size_t& steps) {
  Backtracker backtracker(program, alphabet, text, from, max_steps);
  const Outcome outcome = backtracker.search();
  steps = backtracker.steps();
  switch (outcome) {
    case Outcome::matched:
      return std::optional(backtracker.match());
    case Outcome::failed:
      return std::optional<Span>();
    case Outcome::too_many_steps:
      return too_many_steps();
    case Outcome::too_many_choices:
      break;
  }
  return Error(ErrorCode::unsupported, "a regular expression takes too much memory on a text", "",
               "use possessive repeats, or split the text before");
}

}  // namespace motley::text::regex
