#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/system/clock.h"

namespace motley::engine {

// Where the text of one choice stands in its grammar. Masks are made elsewhere and take their time:
// a choice is drawn once its mask is there. Used by the engine's thread.
class GrammarCursor {
 public:
  virtual ~GrammarCursor() = default;

  // Of another choice whose text is the same so far.
  virtual std::unique_ptr<GrammarCursor> fork() const = 0;

  // Asks for the mask of the next token, if nothing has yet.
  virtual void request_mask() = 0;
  // Whether the mask is there, or will never be.
  virtual bool ready() const = 0;
  // Until it is, at most until then.
  virtual void wait(TimePoint until) const = 0;
  // Why there will never be one; nothing while there may.
  virtual std::optional<Error> failure() const = 0;
  // Bit i % 32 of word i / 32: token i may come next. Only where it is ready without a failure.
  virtual void copy_mask(std::span<std::uint32_t> words) const = 0;

  // Takes a token that the mask allows, and asks for the next mask. True where the text ends with
  // it: nothing follows then.
  virtual bool accept(std::int32_t token) = 0;
};

}  // namespace motley::engine
