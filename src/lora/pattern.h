#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace motley::lora {

// A regular expression in Python's syntax, as rank_pattern and alpha_pattern hold them. It runs in
// time proportional to its size and the text's, whatever it is. What needs more than a regular
// language (look-around, back references) or leaves ASCII's classes is refused.
class Pattern {
 public:
  static Result<Pattern> compile(std::string_view text);

  // Whether the name, or a part of it that begins behind a dot, matches as a whole.
  bool matches(std::string_view name) const;

 private:
  friend class PatternParser;
  enum class Op : std::uint8_t { byte_class, split, begin, end, boundary, not_boundary, accept };
  struct Node {
    Op op = Op::accept;
    std::uint32_t next = 0;
    std::uint32_t other = 0;  // split's second way; byte_class: place in classes_
  };
  using Bytes = std::bitset<256>;

  std::vector<Node> nodes_;
  std::vector<Bytes> classes_;
  std::uint32_t start_ = 0;
};

}  // namespace motley::lora
