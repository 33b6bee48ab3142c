#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/result.h"

namespace motley::text::regex {

// Reads a pattern character by character, and creates its errors.
class PatternCursor {
 public:
  // An error if the pattern is not valid UTF-8.
  static Result<PatternCursor> open(std::string_view pattern, std::string_view where);

  bool done() const { return at_ == points_.size(); }
  // The next character, or one further on; 0xFFFFFFFF beyond the end.
  char32_t peek(std::size_t ahead = 0) const {
    return at_ + ahead < points_.size() ? points_[at_ + ahead] : nothing;
  }
  char32_t take() { return points_[at_++]; }
  void skip(std::size_t count) { at_ += count; }

  // Takes the text if it comes next.
  bool take_if(std::u32string_view text);

  // Takes the text up to and including the next `end`; nothing if there is none.
  std::optional<std::string> take_until(char32_t end);

  // Takes up to `most` digits of a base; nothing if there are none, or if they exceed the code
  // points.
  std::optional<char32_t> take_number(unsigned base, std::size_t most);

  // The position, for backtracking.
  std::size_t position() const { return at_; }
  void go_back(std::size_t position) { at_ = position; }

  // "the regular expression '...' WHAT, at character N".
  Error malformed(std::string_view what, std::string_view fix) const;
  // The same for features that this engine lacks.
  Error unsupported(std::string_view what, std::string_view fix) const;

 private:
  static constexpr char32_t nothing = 0xFFFFFFFF;

  PatternCursor(std::string_view pattern, std::string_view where)
      : pattern_(pattern), where_(where) {}

  Error refused(ErrorCode code, std::string_view what, std::string_view fix) const;

  std::string_view pattern_;
  std::string_view where_;
  std::u32string points_;
  std::size_t at_ = 0;
};

}  // namespace motley::text::regex
