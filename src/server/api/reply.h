#pragma once

#include <string>

#include "base/error.h"
#include "server/output/transcript.h"

namespace motley::server {

// Writes the answer to a generation request, as one body or as a stream. A request's answer is
// written in one of the two ways, in pieces of about `piece_bytes`, so that an answer of hundreds
// of megabytes never exists as a whole.
class Reply {
 public:
  static constexpr std::size_t piece_bytes = std::size_t{64} << 10;

  virtual ~Reply() = default;

  // Keeps what is new, for the body.
  virtual void keep(const ChoiceUpdate& update) = 0;
  // What is kept by now, by keep() or by events().
  virtual std::size_t kept_bytes() const = 0;
  // The next piece of the body of all that was kept; empty behind the last.
  virtual std::string next_piece(const Transcript& transcript) = 0;

  // What is new as server-sent events; may be empty. Where that is much, further events follow:
  // those of more_events(), until it has none.
  virtual std::string events(const ChoiceUpdate& update, const Transcript& transcript) = 0;
  virtual std::string more_events(const Transcript& transcript) = 0;
  // The end of the stream; more_events() has the rest of it, if that is much.
  virtual std::string last_events(const Transcript& transcript) = 0;
  // Its end where the answer has failed on its way; as above.
  virtual std::string failure_events(const Error& error) = 0;
};

}  // namespace motley::server
