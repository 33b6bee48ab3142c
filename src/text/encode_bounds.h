#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace motley::text {

// When encoding of a text stops early.
struct EncodeBounds {
  // More tokens are an error, `too_long`, as soon as that is certain; 0: unlimited.
  std::size_t max_tokens = 0;
  // May be set by any thread: encoding stops soon, with `cancelled`.
  const std::atomic<bool>* cancelled = nullptr;
};

// Checks the bounds while a text is encoded.
class EncodeWatch {
 public:
  EncodeWatch() = default;
  // `word_is_token`: every word has at least one token.
  EncodeWatch(const EncodeBounds& bounds, bool word_is_token)
      : bounds_(bounds), word_is_token_(word_is_token) {}

  // Cheap enough to be called for every word.
  Result<void> step() {
    if (++steps_ % steps_between_looks != 0) return {};
    return look();
  }
  Result<void> look() const {
    if (bounds_.cancelled != nullptr && *bounds_.cancelled)
      return Error(ErrorCode::cancelled, "the request for the tokens has gone");
    return {};
  }
  Result<void> check_tokens(std::size_t tokens) const {
    if (bounds_.max_tokens == 0 || tokens <= bounds_.max_tokens) return {};
    return too_many();
  }
  // For the text so far, whose words may be split further.
  Result<void> check_words(std::size_t words) const {
    if (!word_is_token_) return {};
    return check_tokens(words);
  }

 private:
  static constexpr std::size_t steps_between_looks = 4096;

  Error too_many() const;

  EncodeBounds bounds_;
  bool word_is_token_ = false;
  std::size_t steps_ = 0;
};

}  // namespace motley::text
