#pragma once

#include <compare>
#include <initializer_list>
#include <vector>

namespace motley::text::unicode {

// Code points [first, last].
struct CodeRange {
  char32_t first = 0;
  char32_t last = 0;

  auto operator<=>(const CodeRange&) const = default;
};

// A set of code points as ranges that ascend and do not touch.
class CodeSet {
 public:
  CodeSet() = default;
  CodeSet(std::initializer_list<CodeRange> ranges);
  explicit CodeSet(std::vector<CodeRange> ranges);

  static CodeSet all();

  const std::vector<CodeRange>& ranges() const { return ranges_; }
  bool empty() const { return ranges_.empty(); }
  bool contains(char32_t code_point) const;

  void add(CodeRange range);
  void add(const CodeSet& other);
  CodeSet complement() const;
  CodeSet intersection(const CodeSet& other) const;

  auto operator<=>(const CodeSet&) const = default;

 private:
  void tidy();

  std::vector<CodeRange> ranges_;
};

}  // namespace motley::text::unicode
