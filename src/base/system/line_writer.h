#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

namespace motley {

// Writes to a descriptor, and waits for its reader only so long. Whether all was written; a
// descriptor that is closed or broken takes nothing.
bool write_within(int descriptor, std::string_view text, std::chrono::milliseconds patience);

// Lines on their way to a descriptor, through a bounded ring and a thread of its own: a writer
// never waits for the reader. Lines stay whole and in order. What the ring has no space for is
// dropped and counted, and once there is space again a line says how many were lost, at the place
// where they would stand.
class LineWriter {
 public:
  struct Options {
    int descriptor = 2;
    std::size_t bytes = std::size_t{1} << 20;  // of the ring
    // The line that says so, newline included; empty: no report. On any thread.
    std::function<std::string(std::uint64_t lines)> lost_line;
    std::chrono::milliseconds patience{1000};  // of the destructor
  };

  explicit LineWriter(Options options);
  // Writes what is left, and drops the rest where the reader takes nothing for `patience`.
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  // Its newline included. False: it is lost.
  bool write(std::string_view line);
  // Lines that were dropped, for lack of space or because the descriptor took nothing.
  std::uint64_t lost() const;
  // Returns when everything that was written before has been taken by the descriptor, or was lost;
  // false when `patience` has passed without that.
  bool flush(std::chrono::milliseconds patience);

 private:
  class Ring;
  // The thread's too, which may outlive this in a write that never returns.
  std::shared_ptr<Ring> ring_;
  std::chrono::milliseconds patience_;
  std::thread thread_;
};

}  // namespace motley
