#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "base/result.h"

namespace motley::cli {

// Reads lines of a pipe or file as they arrive, so that a program at the other end can wait for the
// answer to one before it writes the next.
class InputLines {
 public:
  // Borrows an open descriptor. A line longer than `longest` bytes is an error.
  InputLines(int descriptor, std::size_t longest) : descriptor_(descriptor), longest_(longest) {}

  // The next line without its newline, valid until the next call; nothing at the end. Calls
  // `before_waiting` before each read.
  Result<std::optional<std::string_view>> next(FunctionRef<void()> before_waiting);

 private:
  int descriptor_;
  std::size_t longest_;
  std::string buffer_;
  std::size_t begin_ = 0;    // of the next line in the buffer
  std::size_t scanned_ = 0;  // there is no newline between begin_ and here
  bool ended_ = false;
};

}  // namespace motley::cli
