#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/system/clock.h"

namespace motley::grammar {

// The position of one choice's text in its grammar. Masks are computed asynchronously; a choice is
// drawn when its mask has arrived. Used by the engine's thread.
class Cursor {
 public:
  virtual ~Cursor() = default;

  // For another choice with the same text so far.
  virtual std::unique_ptr<Cursor> fork() const = 0;

  // Requests the mask of the next token, unless that has been done.
  virtual void request_mask() = 0;
  // Whether the mask has arrived, or will never arrive.
  virtual bool ready() const = 0;
  // Waits until it is ready, but no longer than `until`.
  virtual void wait(TimePoint until) const = 0;
  // Why the mask will never arrive; nothing while it may.
  virtual std::optional<Error> failure() const = 0;
  // Bit i % 32 of word i / 32: token i may come next. Requires ready() without failure().
  virtual void copy_mask(std::span<std::uint32_t> words) const = 0;

  // Takes a token that the mask allows, and requests the next mask. True if the text ends with it.
  virtual bool accept(std::int32_t token) = 0;
};

}  // namespace motley::grammar
