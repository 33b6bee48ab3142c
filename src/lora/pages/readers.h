#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "tensor/device/device.h"

namespace motley::lora {

// Tracks which work on a device may still read pages. A mark is a point on a reader's stream behind
// everything queued so far; marks are numbered over all readers. Pages released at mark n may be
// written again after mark n of every reader.
//
// Not thread-safe. Streams must outlive this, or have finished when they are destroyed.
class PageReaders {
 public:
  Result<void> mark(tensor::Stream& reader);
  // The number of the latest mark.
  std::uint64_t latest() const { return latest_; }

  // Makes later work of `writer` wait for the marks up to `number`.
  Result<void> hold_back(tensor::Stream& writer, std::uint64_t number) const;
  // The host waits for all marks.
  Result<void> synchronize() const;

 private:
  // Older marks are merged into the next kept one: a wait may be longer, but never too short.
  static constexpr std::size_t kept = 8;
  struct Mark {
    std::uint64_t number = 0;
    std::unique_ptr<tensor::Event> event;
  };
  struct Reader {
    tensor::Stream* stream = nullptr;
    std::array<Mark, kept> marks;
    std::size_t next = 0;
  };

  std::vector<Reader> readers_;
  std::uint64_t latest_ = 0;
};

}  // namespace motley::lora
