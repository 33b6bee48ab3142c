#include "tensor/device/staging.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace motley::tensor {

Result<std::unique_ptr<Staging>> Staging::create(Device& device, const Options& options) {
  MOTLEY_CHECK(options.pieces > 0 && options.piece_bytes > 0, "a ring of some pieces");
  constexpr std::size_t unit = Allocator::alignment;
  const std::size_t piece_bytes = (options.piece_bytes + unit - 1) / unit * unit;
  const auto pieces = static_cast<std::size_t>(options.pieces);
  MOTLEY_TRY(Buffer memory, device.pinned_memory().allocate(pieces * piece_bytes));
  auto ring = std::unique_ptr<Staging>(new Staging(std::move(memory), piece_bytes));
  for (std::size_t i = 0; i < pieces; ++i) {
    MOTLEY_TRY(std::unique_ptr<Event> copied, device.create_event());
    ring->slots_.push_back({.copied = std::move(copied)});
  }
  return ring;
}

Staging::~Staging() {
  for (const Slot& slot : slots_) {
    MOTLEY_CHECK(!slot.out, "pieces go before their ring");
    // An error here is the device's end, which the next call on it reports.
    static_cast<void>(slot.copied->synchronize().ok());
  }
}

Result<Staging::Piece> Staging::take() {
  std::size_t index = 0;
  {
    std::unique_lock held(lock_);
    // The one that was sent longest ago is the likeliest to have been copied.
    const auto better = [](const Slot& a, const Slot& b) {
      return std::pair(a.out, a.sent) < std::pair(b.out, b.sent);
    };
    auto best = slots_.end();
    back_.wait(held, [&] {
      best = std::ranges::min_element(slots_, better);
      return !best->out;
    });
    best->out = true;
    index = static_cast<std::size_t>(best - slots_.begin());
  }
  Piece piece(this, index);
  MOTLEY_TRY_VOID(slots_[index].copied->synchronize());
  return piece;
}

Result<void> Staging::send(Piece piece, Stream& stream, void* to, std::size_t bytes) {
  MOTLEY_CHECK(piece.ring_ == this && bytes <= piece_bytes_, "a piece of this ring");
  MOTLEY_TRY_VOID(stream.copy(to, piece.data(), bytes));
  const Result<void> recorded = stream.record(*slots_[piece.index_].copied);
  if (!recorded.ok()) static_cast<void>(stream.synchronize().ok());
  return recorded;
}

Result<void> Staging::copy(Stream& stream, void* to, const void* from, std::size_t bytes) {
  auto* const target = static_cast<std::byte*>(to);
  const auto* const source = static_cast<const std::byte*>(from);
  for (std::size_t at = 0; at < bytes; at += piece_bytes_) {
    const std::size_t count = std::min(piece_bytes_, bytes - at);
    MOTLEY_TRY(Piece piece, take());
    std::memcpy(piece.data(), source + at, count);
    MOTLEY_TRY_VOID(send(std::move(piece), stream, target + at, count));
  }
  return {};
}

void Staging::put_back(std::size_t index) {
  {
    const std::lock_guard held(lock_);
    slots_[index].out = false;
    slots_[index].sent = ++clock_;
  }
  back_.notify_one();
}

}  // namespace motley::tensor
