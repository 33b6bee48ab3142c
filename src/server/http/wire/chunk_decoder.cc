#include "server/http/wire/chunk_decoder.h"

#include <algorithm>

#include "base/ascii.h"
#include "base/cat.h"

namespace motley::server {
namespace {

constexpr int max_digits = 15;  // no size overflows

Error malformed(std::string_view what) {
  return {ErrorCode::invalid_argument, cat("a chunked body with ", what), "",
          "send well-formed chunks, or a Content-Length"};
}

}  // namespace

Result<ChunkDecoder::Step> ChunkDecoder::take(std::string_view bytes) {
  std::size_t used = 0;
  while (used < bytes.size() && !done()) {
    if (state_ == State::content) {
      const std::size_t length = std::min<std::uint64_t>(chunk_bytes_, bytes.size() - used);
      chunk_bytes_ -= length;
      if (chunk_bytes_ == 0) state_ = State::content_return;
      return Step{.used = used + length, .content = bytes.substr(used, length)};
    }
    MOTLEY_TRY_VOID(take_framing(bytes[used]));
    ++used;
  }
  return Step{.used = used, .content = {}};
}

Result<void> ChunkDecoder::take_framing(char byte) {
  switch (state_) {
    case State::size:
      return take_size(byte);
    case State::extension:
      if (byte != '\r') return take_extra(byte);
      state_ = State::size_line_feed;
      return {};
    case State::size_line_feed:
      return expect(byte, '\n', last_ ? State::trailer : State::content);
    case State::content_return:
      return expect(byte, '\r', State::content_line_feed);
    case State::content_line_feed:
      digits_ = 0;
      return expect(byte, '\n', State::size);
    default:
      return take_trailer(byte);
  }
}

Result<void> ChunkDecoder::take_size(char byte) {
  if (const int digit = ascii::digit_value(byte); digit < 16) {
    if (++digits_ > max_digits) return malformed("a size of too many digits");
    chunk_bytes_ = chunk_bytes_ << 4 | static_cast<std::uint64_t>(digit);
    return {};
  }
  if (digits_ == 0) return malformed("a chunk without its size");
  last_ = chunk_bytes_ == 0;
  if (byte == '\r') {
    state_ = State::size_line_feed;
  } else if (byte == ';') {
    state_ = State::extension;
  } else {
    return malformed("a size that is no hexadecimal number");
  }
  return {};
}

Result<void> ChunkDecoder::take_trailer(char byte) {
  if (state_ == State::trailer_line_feed) {
    if (line_bytes_ == 0) return expect(byte, '\n', State::done);
    line_bytes_ = 0;
    return expect(byte, '\n', State::trailer);
  }
  if (byte == '\r') {
    state_ = State::trailer_line_feed;
    return {};
  }
  ++line_bytes_;
  return take_extra(byte);
}

Result<void> ChunkDecoder::take_extra(char byte) {
  const auto code = static_cast<unsigned char>(byte);
  if ((code < ' ' && byte != '\t') || code == 0x7F) return malformed("a control character");
  if (++extra_bytes_ > max_extra_bytes_)
    return Error(ErrorCode::too_long,
                 cat("a chunked body with more than ", max_extra_bytes_,
                     " bytes of extensions and trailers"),
                 "", "send it without them");
  return {};
}

Result<void> ChunkDecoder::expect(char byte, char wanted, State next) {
  if (byte != wanted) return malformed("a line or a chunk that does not end with CR LF");
  state_ = next;
  return {};
}

}  // namespace motley::server
