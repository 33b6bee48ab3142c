#include "runner/background_copies.h"

#include <utility>

#include "base/check.h"

namespace motley::runner {

Result<BackgroundCopies> BackgroundCopies::create(tensor::Device& device, std::int64_t most) {
  BackgroundCopies copies;
  MOTLEY_TRY(copies.stream_, device.create_stream());
  MOTLEY_TRY(copies.before_, device.create_event());
  for (std::int64_t i = 0; i < most; ++i) {
    MOTLEY_TRY(std::unique_ptr<tensor::Event> end, device.create_event());
    copies.ends_.push_back(std::move(end));
  }
  return copies;
}

Result<void> BackgroundCopies::begin(tensor::Stream& before,
                                     FunctionRef<Result<void>(tensor::Stream& stream)> copy) {
  MOTLEY_CHECK(begun_ - ended_ < ends_.size(), "no more copies than were announced");
  MOTLEY_TRY_VOID(before.record(*before_));
  MOTLEY_TRY_VOID(stream_->wait(*before_));
  MOTLEY_TRY_VOID(copy(*stream_));
  return stream_->record(*ends_[begun_++ % ends_.size()]);
}

Result<std::uint64_t> BackgroundCopies::ended() {
  while (ended_ < begun_) {
    MOTLEY_TRY(const bool reached, ends_[ended_ % ends_.size()]->reached());
    if (!reached) break;
    ++ended_;
  }
  return ended_;
}

Result<void> BackgroundCopies::finish() {
  if (ended_ == begun_) return {};
  MOTLEY_TRY_VOID(stream_->synchronize());
  ended_ = begun_;
  return {};
}

}  // namespace motley::runner
