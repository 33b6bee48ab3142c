#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/result.h"

namespace motley::text::regex {

// Reads a pattern a character at a time, and makes its errors.
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

  // Up to (and past) the next `end`, or nothing if there is none.
  std::optional<std::string> take_until(char32_t end);

  // The digits of a base that come next, at most `most`; nothing if there is none, or if they make
  // more than a code point can be.
  std::optional<char32_t> take_number(unsigned base, std::size_t most);

  // Where a search would have to look, for trying something and going back.
  std::size_t position() const { return at_; }
  void go_back(std::size_t position) { at_ = position; }

  // "the regular expression '...' WHAT, at character N".
  Error malformed(std::string_view what, std::string_view fix) const;
  // The same for what only this engine lacks.
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
