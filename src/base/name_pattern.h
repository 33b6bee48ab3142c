#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace motley {

// A regular expression in Python's syntax over names of modules, as configs of adapters and of
// quantised models hold them. It runs in time bounded by its size and the name's, whatever it is.
// What leaves ASCII's classes or needs more than a finite automaton (look-behind, back references)
// is refused.
class NamePattern {
 public:
  static Result<NamePattern> compile(std::string_view text);

  // Whether the name, or a part of it that begins behind a dot, matches as a whole.
  bool matches_end(std::string_view name) const;

  // Whether some beginning of the name matches.
  bool matches_start(std::string_view name) const;

 private:
  friend class PatternParser;
  friend class PatternRun;
  enum class Op : std::uint8_t {
    byte_class,
    split,
    begin,
    end,
    boundary,
    not_boundary,
    ahead,
    not_ahead,
    accept,
  };
  struct Node {
    Op op = Op::accept;
    std::uint32_t next = 0;
    // split: the second way; byte_class: place in classes_; ahead, not_ahead: where what must or
    // must not follow starts, with an accept of its own.
    std::uint32_t other = 0;
  };
  using Bytes = std::bitset<256>;

  std::vector<Node> nodes_;
  std::vector<Bytes> classes_;
  std::uint32_t start_ = 0;
};

}  // namespace motley
