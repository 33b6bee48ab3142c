#include "text/unicode/code_set.h"

#include <algorithm>
#include <utility>

namespace motley::text::unicode {
namespace {

constexpr char32_t last_code_point = 0x10FFFF;

bool begins_before(const CodeRange& a, const CodeRange& b) { return a.first < b.first; }

}  // namespace

CodeSet::CodeSet(std::initializer_list<CodeRange> ranges) : ranges_(ranges) { tidy(); }

CodeSet::CodeSet(std::vector<CodeRange> ranges) : ranges_(std::move(ranges)) { tidy(); }

CodeSet CodeSet::all() { return {{.first = 0, .last = last_code_point}}; }

bool CodeSet::contains(char32_t code_point) const {
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), code_point,
                       [](char32_t point, const CodeRange& range) { return point < range.first; });
  return after != ranges_.begin() && code_point <= std::prev(after)->last;
}

void CodeSet::add(CodeRange range) {
  const bool after_all = ranges_.empty() || range.first > ranges_.back().last + 1;
  ranges_.push_back(range);
  if (!after_all) tidy();
}

void CodeSet::add(const CodeSet& other) {
  std::vector<CodeRange> both(ranges_.size() + other.ranges_.size());
  std::merge(ranges_.begin(), ranges_.end(), other.ranges_.begin(), other.ranges_.end(),
             both.begin(), begins_before);
  ranges_ = std::move(both);
  tidy();
}

CodeSet CodeSet::complement() const {
  CodeSet others;
  char32_t next = 0;
  for (const CodeRange& range : ranges_) {
    if (range.first > next) others.ranges_.push_back({.first = next, .last = range.first - 1});
    next = range.last + 1;
  }
  if (next <= last_code_point) others.ranges_.push_back({.first = next, .last = last_code_point});
  return others;
}

CodeSet CodeSet::intersection(const CodeSet& other) const {
  CodeSet both;
  auto a = ranges_.begin();
  auto b = other.ranges_.begin();
  while (a != ranges_.end() && b != other.ranges_.end()) {
    const char32_t first = std::max(a->first, b->first);
    const char32_t last = std::min(a->last, b->last);
    if (first <= last) both.ranges_.push_back({.first = first, .last = last});
    if (a->last < b->last)
      ++a;
    else
      ++b;
  }
  return both;
}

void CodeSet::tidy() {
  if (!std::is_sorted(ranges_.begin(), ranges_.end(), begins_before))
    std::sort(ranges_.begin(), ranges_.end(), begins_before);
  std::size_t kept = 0;
  for (const CodeRange& range : ranges_) {
    if (kept > 0 && range.first <= ranges_[kept - 1].last + 1)
      ranges_[kept - 1].last = std::max(ranges_[kept - 1].last, range.last);
    else
      ranges_[kept++] = range;
  }
  ranges_.resize(kept);
}

}  // namespace motley::text::unicode
