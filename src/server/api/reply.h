#pragma once

#include <string>

#include "server/output/transcript.h"

namespace motley::server {

// Writes the answer to a generation request, in one piece or as a stream. A request's answer is
// written in one of the two ways.
class Reply {
 public:
  virtual ~Reply() = default;

  // Keeps what is new, for whole().
  virtual void keep(const ChoiceUpdate& update) = 0;
  // All that was kept, as the body of an answer.
  virtual std::string whole(const Transcript& transcript) = 0;

  // What is new as server-sent events; may be empty.
  virtual std::string events(const ChoiceUpdate& update, const Transcript& transcript) = 0;
  // The end of the stream.
  virtual std::string last_events(const Transcript& transcript) = 0;
};

}  // namespace motley::server
