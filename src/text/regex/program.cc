#include "text/regex/program.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "text/unicode/property.h"

namespace motley::text::regex {
namespace {

// A repeat is expanded if its copies have at most this many instructions.
constexpr std::size_t longest_copies = 64;
constexpr std::size_t longest_program = 100'000;
// First sets are computed only for programs up to this length, and to this depth.
constexpr std::size_t longest_with_firsts = 2'000;
constexpr std::size_t longest_search = 64;

class Compiler {
 public:
  explicit Compiler(SetList& sets) : sets_(sets) {}

  bool too_long() const { return program_.code.size() > longest_program; }

  Program compile(const Node& tree) {
    emit(tree);
    add({.op = Op::match});
    if (program_.code.size() <= longest_with_firsts) find_firsts();
    return std::move(program_);
  }

 private:
  std::vector<Instruction>& code() { return program_.code; }

  std::uint32_t here() const { return static_cast<std::uint32_t>(program_.code.size()); }

  std::uint32_t add(Instruction instruction) {
    code().push_back(instruction);
    return here() - 1;
  }

  std::uint32_t take_slots(std::uint32_t count) {
    const std::uint32_t slot = program_.slots;
    program_.slots += count;
    return slot;
  }

  void emit(const Node& node) {
    if (too_long()) return;
    switch (node.kind) {
      case NodeKind::set:
        add({.op = Op::set, .set = sets_.number(node.set)});
        return;
      case NodeKind::sequence:
        for (const Node& child : node.children) emit(child);
        return;
      case NodeKind::choice:
        return emit_choice(node);
      case NodeKind::repeat:
        return emit_repeat(node, false);
      case NodeKind::look:
        return emit_look(node);
      case NodeKind::atomic:
        return emit_atomic(node.children.front());
      case NodeKind::anchor:
        return emit_anchor(node.anchor);
    }
  }

  void emit_anchor(Anchor anchor) {
    const bool border = anchor == Anchor::word_border || anchor == Anchor::no_word_border;
    add({.op = Op::anchor,
         .anchor = anchor,
         .set = border ? sets_.number(*unicode::property("word")) : 0});
  }

  void emit_choice(const Node& node) {
    std::vector<std::uint32_t> ends;
    for (std::size_t i = 0; i + 1 < node.children.size(); ++i) {
      const std::uint32_t split = add({.op = Op::split});
      emit(node.children[i]);
      ends.push_back(add({.op = Op::jump}));
      code()[split].to = here();
    }
    emit(node.children.back());
    for (const std::uint32_t end : ends) code()[end].to = here();
  }

  void emit_atomic(const Node& child) {
    if (child.kind == NodeKind::repeat && child.children.front().kind == NodeKind::set &&
        child.greed == Greed::greedy)
      return emit_repeat(child, true);
    const std::uint32_t slot = take_slots(1);
    add({.op = Op::atomic_begin, .slot = slot});
    emit(child);
    add({.op = Op::atomic_end, .slot = slot});
  }

  void emit_look(const Node& node) {
    const Node& child = node.children.front();
    const bool behind = node.direction == Direction::behind;
    if (child.kind == NodeKind::set) {
      add({.op = behind ? Op::peek_behind : Op::peek,
           .negated = node.negated,
           .set = sets_.number(child.set)});
      return;
    }
    const Width reach = behind ? width(child) : Width{};
    const std::uint32_t slot = take_slots(2);
    const std::uint32_t begin = add({.op = behind ? Op::behind_begin : Op::look_begin,
                                     .negated = node.negated,
                                     .slot = slot,
                                     .min = reach.min,
                                     .max = reach.max});
    emit(child);
    add({.op = behind ? Op::behind_end : Op::look_end, .negated = node.negated, .slot = slot});
    code()[begin].to = here();
  }

  void emit_repeat(const Node& node, bool possessive) {
    const Node& child = node.children.front();
    if (node.max == 0) return;
    if (child.kind == NodeKind::set) {
      add({.op = Op::repeat_set,
           .greed = node.greed,
           .possessive = possessive,
           .set = sets_.number(child.set),
           .min = node.min,
           .max = node.max});
      return;
    }
    const bool lazy = node.greed == Greed::lazy;
    const bool endless = node.max == unlimited;
    const std::size_t copies = endless ? node.min + std::size_t{1} : node.max;
    if ((endless && width(child).min == 0) || copies * (length(child) + 2) > longest_copies)
      return emit_loop(node);
    for (std::uint32_t i = 0; i < node.min; ++i) emit(child);
    if (endless) {
      const std::uint32_t split = add({.op = lazy ? Op::split_last : Op::split});
      emit(child);
      add({.op = Op::jump, .to = split});
      code()[split].to = here();
      return;
    }
    std::vector<std::uint32_t> splits;
    for (std::uint32_t i = node.min; i < node.max; ++i) {
      splits.push_back(add({.op = lazy ? Op::split_last : Op::split}));
      emit(child);
    }
    for (const std::uint32_t split : splits) code()[split].to = here();
  }

  // The number of instructions of a node; exact up to longest_copies.
  static std::size_t length(const Node& node) {
    std::size_t sum = 2;
    for (const Node& child : node.children) {
      sum += length(child) + 2;
      if (sum > longest_copies) return sum;
    }
    if (node.kind != NodeKind::repeat || node.children.front().kind == NodeKind::set) return sum;
    const std::size_t copies = node.max == unlimited ? node.min + std::size_t{1} : node.max;
    return std::min(sum * copies, longest_copies + 1);
  }

  void emit_loop(const Node& node) {
    const std::uint32_t slot = take_slots(2);
    add({.op = Op::loop_begin, .slot = slot});
    const std::uint32_t check = add({.op = Op::loop_check,
                                     .greed = node.greed,
                                     .slot = slot,
                                     .min = node.min,
                                     .max = node.max});
    add({.op = Op::loop_enter, .slot = slot});
    emit(node.children.front());
    const std::uint32_t end =
        add({.op = Op::loop_end, .bounded = node.max != unlimited, .to = check, .slot = slot});
    code()[check].to = here();
    code()[end].min = here();
  }

  // Computes first sets for each choice.
  void find_firsts() {
    program_.first = first_from(0);
    for (std::uint32_t at = 0; at < code().size(); ++at) {
      const Op op = code()[at].op;
      if (op == Op::split || op == Op::split_last) code()[at].first_to = first_from(code()[at].to);
      if (op == Op::split || op == Op::split_last || op == Op::repeat_set)
        code()[at].first_next = first_from(at + 1);
    }
  }

  std::uint32_t first_from(std::uint32_t start) {
    std::vector<std::uint32_t> pending{start};
    std::vector<std::uint32_t> seen{start};
    std::vector<std::uint32_t> first;  // sets
    const auto visit = [&](std::uint32_t at) {
      for (const std::uint32_t known : seen)
        if (known == at) return;
      pending.push_back(at);
      seen.push_back(at);
    };
    while (!pending.empty()) {
      if (seen.size() > longest_search) return no_row;
      const std::uint32_t at = pending.back();
      pending.pop_back();
      const Instruction& instruction = code()[at];
      switch (instruction.op) {
        // What follows these must not influence earlier choices.
        case Op::match:
        case Op::atomic_end:
        case Op::behind_end:
        case Op::look_end:
          return no_row;
          break;
        case Op::set:
          first.push_back(instruction.set);
          break;
        case Op::repeat_set:
          first.push_back(instruction.set);
          if (instruction.min == 0) visit(at + 1);
          break;
        case Op::jump:
        case Op::look_begin:
        case Op::behind_begin:
          visit(instruction.to);
          break;
        case Op::split:
        case Op::split_last:
        case Op::loop_check:
          visit(at + 1);
          visit(instruction.to);
          break;
        case Op::loop_end:
          visit(instruction.to);
          visit(instruction.min);
          break;
        case Op::loop_begin:
        case Op::loop_enter:
        case Op::atomic_begin:
        case Op::peek:
        case Op::peek_behind:
        case Op::anchor:
          visit(at + 1);
          break;
      }
    }
    std::sort(first.begin(), first.end());
    first.erase(std::unique(first.begin(), first.end()), first.end());
    return union_of(first);
  }

  std::uint32_t union_of(const std::vector<std::uint32_t>& parts) {
    const auto [place, fresh] = unions_.try_emplace(parts, 0);
    if (fresh) {
      unicode::CodeSet all;
      for (const std::uint32_t part : parts) all.add(sets_.sets()[part]);
      place->second = sets_.number(all);
    }
    return place->second;
  }

  SetList& sets_;
  Program program_;
  std::map<std::vector<std::uint32_t>, std::uint32_t> unions_;
};

}  // namespace

Result<Program> compile_program(const Node& tree, SetList& sets, std::string_view where) {
  Compiler compiler(sets);
  Program program = compiler.compile(tree);
  if (program.code.size() > longest_program) {
    return Error(ErrorCode::unsupported, "the regular expression is too long once it is compiled",
                 std::string(where), "repeat less inside repeats");
  }
  return program;
}

}  // namespace motley::text::regex
