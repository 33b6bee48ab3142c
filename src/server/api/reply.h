#pragma once

#include <string>

#include "base/error.h"
#include "serving/answers/transcript.h"

namespace motley::server {

// Writes the answer to a generation request, as one body or as a stream, in pieces of about
// `piece_bytes`, so that an answer of hundreds of megabytes never exists as a whole.
class Reply {
 public:
  static constexpr std::size_t piece_bytes = std::size_t{64} << 10;

  virtual ~Reply() = default;

  // Keeps new text, for the body.
  virtual void keep(const serving::ChoiceUpdate& update) = 0;
  // The bytes kept so far, by keep() or by events().
  virtual std::size_t kept_bytes() const = 0;
  // The next piece of the body; empty after the last one.
  virtual std::string next_piece(const serving::Transcript& transcript) = 0;

  // New text as server-sent events; may be empty. If there is much, more_events() returns further
  // events until it is empty.
  virtual std::string events(const serving::ChoiceUpdate& update,
                             const serving::Transcript& transcript) = 0;
  virtual std::string more_events(const serving::Transcript& /*transcript*/) { return {}; }
  // The end of the stream; if it is long, more_events() returns the rest.
  virtual std::string last_events(const serving::Transcript& transcript) = 0;
  // The end of a stream that has failed; as above.
  virtual std::string failure_events(const Error& error) = 0;
};

}  // namespace motley::server
