#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace motley::text {

// When encoding a text ends before its end.
struct EncodeBounds {
  // More tokens are an error, `too_long`, as soon as they are sure; 0: any number.
  std::size_t max_tokens = 0;
  // Set from any thread: the call ends soon, with `cancelled`.
  const std::atomic<bool>* cancelled = nullptr;
};

// Asked again and again while a text is encoded.
class EncodeWatch {
 public:
  EncodeWatch() = default;
  // `word_is_token`: every word has a token at least.
  EncodeWatch(const EncodeBounds& bounds, bool word_is_token)
      : bounds_(bounds), word_is_token_(word_is_token) {}

  // Cheap enough for every word.
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
  // Of the text so far, which may be split further.
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
