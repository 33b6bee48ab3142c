#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/result.h"
#include "server/http/messages/request_head.h"
#include "server/http/wire/chunk_decoder.h"

namespace motley::server {

// How far a request's body has come.
struct IncomingBody {
  IncomingBody() = default;
  IncomingBody(const RequestHead& head, std::size_t most_extra_bytes)
      : left(head.content_length), expects_continue(head.expects_continue && head.has_body()) {
    if (head.chunked) chunks.emplace(most_extra_bytes);
  }

  // All of it has come, and then: the last piece was taken.
  bool done() const { return chunks ? chunks->done() : left == 0; }
  bool finished() const { return done() && used == 0 && !failure; }

  std::optional<ChunkDecoder> chunks;  // of a chunked one
  std::uint64_t left = 0;              // bytes still to come, of another
  std::size_t max_bytes = 0;
  bool streamed = false;  // the handler reads it
  bool expects_continue = false;
  std::size_t received = 0;
  std::size_t used = 0;  // buffered bytes that the last piece came from
  // Of a streamed one: why no more of it can be read; and the time left for its next bytes, counted
  // from the mark.
  std::optional<Error> failure = {};
  std::size_t mark = 0;
  std::chrono::nanoseconds time_left{};
};

}  // namespace motley::server
