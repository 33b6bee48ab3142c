#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/system/clock.h"

namespace motley {

// Shows the progress of long work: a bar that is redrawn on a terminal; elsewhere a plain line
// every ten per cent, at most one a second. Not thread-safe.
class Progress {
 public:
  enum class Unit : std::uint8_t { count, bytes };

  struct Options {
    std::string label;  // "loading weights"
    std::uint64_t total = 0;
    Unit unit = Unit::count;
    bool terminal = false;
    std::function<void(std::string_view)> sink;
    const Clock* clock = nullptr;
  };

  // Writes to standard error; a bar if that is a terminal.
  static Progress to_stderr(std::string label, std::uint64_t total, Unit unit);

  explicit Progress(Options options);
  Progress(Progress&&) = default;

  void advance(std::uint64_t amount) { set(done_ + amount); }
  void set(std::uint64_t done);

  // Prints the last line, with the time. Without it (after an error) the destructor ends the bar's
  // line, so that the error has a line of its own.
  void finish();
  ~Progress();

 private:
  void draw_bar();
  void print_line();
  std::string amount(std::uint64_t value) const;

  Options options_;
  TimePoint start_;
  TimePoint last_drawn_;
  std::uint64_t done_ = 0;
  std::uint64_t next_tenth_ = 1;
  bool open_line_ = false;
};

}  // namespace motley
