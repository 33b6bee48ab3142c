#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace motley::server {

// Decodes a chunked body, however it is divided into pieces. Chunk extensions and trailers are
// skipped; their total size is limited.
class ChunkDecoder {
 public:
  explicit ChunkDecoder(std::size_t max_extra_bytes) : max_extra_bytes_(max_extra_bytes) {}

  struct Step {
    std::size_t used = 0;      // of the bytes given
    std::string_view content;  // of the body, a part of the given bytes
  };
  // Decodes up to the end of the first run of content, of the body, or of the bytes.
  Result<Step> take(std::string_view bytes);
  // The last chunk and the trailers have arrived.
  bool done() const { return state_ == State::done; }

 private:
  enum class State : std::uint8_t {
    size,
    extension,
    size_line_feed,
    content,
    content_return,
    content_line_feed,
    trailer,
    trailer_line_feed,
    done,
  };

  Result<void> take_framing(char byte);
  Result<void> take_size(char byte);
  Result<void> take_trailer(char byte);
  Result<void> take_extra(char byte);
  Result<void> expect(char byte, char wanted, State next);

  std::size_t max_extra_bytes_;
  std::size_t extra_bytes_ = 0;
  State state_ = State::size;
  int digits_ = 0;
  std::uint64_t chunk_bytes_ = 0;  // still to come
  bool last_ = false;              // of the current chunk
  std::size_t line_bytes_ = 0;     // of a trailer
};

}  // namespace motley::server
