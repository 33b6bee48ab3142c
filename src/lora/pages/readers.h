#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "tensor/device/device.h"

namespace motley::lora {

// Which work on a device may still read pages. A mark is a point on a reader's stream behind
// everything that it had queued; marks are numbered over all readers. What was let go at mark n may
// be written again behind mark n of every reader.
//
// The caller keeps calls apart. Streams must outlive this, or have done their work when they go.
class PageReaders {
 public:
  Result<void> mark(tensor::Stream& reader);
  // The number of the latest mark.
  std::uint64_t latest() const { return latest_; }

  // What `writer` does from now on comes behind the marks up to `number`.
  Result<void> hold_back(tensor::Stream& writer, std::uint64_t number) const;
  // The host waits for all marks.
  Result<void> synchronize() const;

 private:
  // Older marks are stood for by the next that is kept: a wait may be longer, never too short.
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
