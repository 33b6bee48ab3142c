#include "lora/pages/writer.h"

#include <cstring>
#include <utility>

#include "base/check.h"
#include "lora/pages/placement.h"

namespace motley::lora {

Result<std::byte*> PageWriter::next(std::byte* to, std::size_t bytes) {
  if (ring_ == nullptr) return to;
  MOTLEY_CHECK(bytes <= max_bytes && bytes <= ring_->piece_bytes(), "no more than fits a piece");
  // The gap between blobs is shorter than their alignment; it is filled with NaN.
  const std::byte* const end = to_ + used_;
  const bool follows = piece_ && to >= end && to < end + blob_alignment;
  const std::size_t gap = follows ? static_cast<std::size_t>(to - end) : 0;
  if (!follows || used_ + gap + bytes > piece_.size()) {
    MOTLEY_TRY_VOID(finish());
    MOTLEY_TRY(piece_, ring_->take());
    to_ = to;
  } else {
    std::memset(piece_.data() + used_, 0xFF, gap);
    used_ += gap;
  }
  std::byte* const place = piece_.data() + used_;
  used_ += bytes;
  return place;
}

Result<void> PageWriter::finish() {
  if (!piece_) return {};
  return ring_->send(std::move(piece_), *stream_, to_, std::exchange(used_, 0));
}

}  // namespace motley::lora
