#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "base/system/clock.h"

namespace motley {

// Writes to a descriptor, waiting for its reader at most `patience`. Returns whether everything was
// written; a closed or broken descriptor takes nothing.
bool write_within(int descriptor, std::string_view text, std::chrono::milliseconds patience);

// Writes lines to a descriptor through a bounded ring and a separate thread, so that callers never
// wait for the reader. Lines stay whole and in order. Lines that do not fit in the ring are dropped
// and counted; once there is space again, a line in their place reports how many.
class LineWriter {
 public:
  struct Options {
    int descriptor = 2;
    std::size_t bytes = std::size_t{1} << 20;  // of the ring
    // Makes that line, newline included; empty: no report. Called on any thread.
    std::function<std::string(std::uint64_t lines)> lost_line;
    std::chrono::milliseconds patience{1000};  // of the destructor
    const Clock* clock = nullptr;  // of the destructor and of flush(); null: the steady clock
  };

  explicit LineWriter(Options options);
  // Writes the rest; drops it if the reader takes nothing for `patience`.
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  // The line includes its newline. False: it is lost.
  bool write(std::string_view line);
  // Lines that were dropped, for lack of space or because the descriptor took nothing.
  std::uint64_t lost() const;
  // Returns when everything written before has been taken by the descriptor or lost; false if
  // `patience` has passed first.
  bool flush(std::chrono::milliseconds patience);

 private:
  class Ring;
  // Shared with the thread, which may outlive this in a write that never returns.
  std::shared_ptr<Ring> ring_;
  std::chrono::milliseconds patience_;
  std::thread thread_;
};

}  // namespace motley
