#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/result.h"

namespace motley::text::jinja {

// Both count from 1; columns are characters.
struct Position {
  int line = 1;
  int column = 1;
};

// The text of a template, valid UTF-8 with \n as line ends, and its name in messages.
class Source {
 public:
  // Text that is not UTF-8 is refused.
  static Result<Source> make(std::string_view text, std::string name);

  std::string_view text() const { return text_; }
  const std::string& name() const { return name_; }

  Position position(std::size_t byte) const;
  // "NAME, line 3, column 14"
  std::string where(Position position) const;

  // An error of the template itself at a byte.
  Error malformed(std::string what, std::size_t byte) const;
  // The same for features of Jinja that this engine refuses.
  Error refused(std::string what, std::size_t byte) const;

 private:
  Source(std::string text, std::string name) : text_(std::move(text)), name_(std::move(name)) {}

  std::string text_;
  std::string name_;
};

}  // namespace motley::text::jinja
