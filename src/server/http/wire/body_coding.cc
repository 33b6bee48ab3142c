#include "server/http/wire/body_coding.h"

#define ZLIB_CONST
#include <algorithm>
#include <array>
#include <utility>
#include <zlib.h>

#include "base/ascii.h"
#include "base/cat.h"

namespace motley::server {
namespace {

constexpr std::size_t first_bytes = 16 << 10;
constexpr int window_bits = 15;
// makes zlib expect gzip's header and trailer
constexpr int gzip_window_bits = window_bits + 16;

// HTTP's "deflate" is zlib's format, but some clients send the raw stream.
bool has_zlib_head(std::string_view body) {
  if (body.size() < 2) return false;
  const auto first = static_cast<unsigned char>(body[0]);
  const auto second = static_cast<unsigned char>(body[1]);
  return (first & 15) == Z_DEFLATED && (first * 256 + second) % 31 == 0;
}

int window_bits_of(std::string_view body, BodyCoding coding) {
  if (coding == BodyCoding::gzip) return gzip_window_bits;
  return has_zlib_head(body) ? window_bits : -window_bits;
}

class Inflater {
 public:
  Inflater(std::string_view body, BodyCoding coding) : coding_(coding) {
    stream_.next_in = reinterpret_cast<const Bytef*>(body.data());
    stream_.avail_in = static_cast<uInt>(body.size());
    begun_ = inflateInit2(&stream_, window_bits_of(body, coding)) == Z_OK;
  }
  ~Inflater() {
    if (begun_) inflateEnd(&stream_);
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // Fills the buffer as far as the body goes, and returns the number of bytes.
  Result<std::size_t> fill(char* room, std::size_t bytes) {
    if (!begun_) return Error(ErrorCode::out_of_memory, "no memory to decode a body");
    stream_.next_out = reinterpret_cast<Bytef*>(room);
    stream_.avail_out = static_cast<uInt>(bytes);
    while (!ended_ && stream_.avail_out > 0) MOTLEY_TRY_VOID(advance());
    return bytes - stream_.avail_out;
  }

 private:
  Error malformed(std::string_view what) const {
    return {ErrorCode::invalid_argument,
            cat("the body is no ", coding_ == BodyCoding::gzip ? "gzip" : "deflate", ": ", what),
            "", "send it as Content-Encoding says, or without that"};
  }

  Result<void> advance() {
    switch (inflate(&stream_, Z_NO_FLUSH)) {
      case Z_OK:
        return {};
      case Z_STREAM_END:
        ended_ = stream_.avail_in == 0;
        if (ended_) return {};
        // Several concatenated gzip files are one.
        if (coding_ == BodyCoding::gzip && inflateReset(&stream_) == Z_OK) return {};
        return malformed("bytes behind its end");
      case Z_BUF_ERROR:
        return malformed("it ends in the middle");
      case Z_MEM_ERROR:
        return Error(ErrorCode::out_of_memory, "no memory to decode a body");
      default:
        return malformed("its bytes are damaged");
    }
  }

  BodyCoding coding_;
  z_stream stream_{};
  bool begun_ = false;
  bool ended_ = false;
};

}  // namespace

std::optional<BodyCoding> body_coding(std::string_view content_encoding) {
  static constexpr std::array<std::pair<std::string_view, BodyCoding>, 5> names = {
      {{"", BodyCoding::none},
       {"identity", BodyCoding::none},
       {"gzip", BodyCoding::gzip},
       {"x-gzip", BodyCoding::gzip},
       {"deflate", BodyCoding::deflate}}};
  const std::string name = ascii::lower(content_encoding);
  const auto* const found = std::ranges::find(names, std::string_view(name),
                                              &std::pair<std::string_view, BodyCoding>::first);
  if (found == names.end()) return std::nullopt;
  return found->second;
}

Result<std::string> decode_body(std::string_view body, BodyCoding coding, std::size_t max_bytes,
                                const BodyCharge& charge) {
  if (coding == BodyCoding::none || body.empty()) return std::string(body);
  Inflater inflater(body, coding);
  std::string decoded;
  std::size_t size = 0;
  // One byte more than allowed detects bodies that are too long.
  while (size <= max_bytes) {
    const std::size_t capacity =
        std::min(std::max({first_bytes, 4 * body.size(), 2 * decoded.size()}), max_bytes + 1);
    MOTLEY_TRY_VOID(charge(capacity - decoded.size()));
    std::string larger;
    larger.reserve(capacity);
    larger.append(decoded).resize(capacity);
    decoded.swap(larger);
    MOTLEY_TRY(const std::size_t more, inflater.fill(decoded.data() + size, capacity - size));
    size += more;
    if (size == capacity) continue;
    decoded.resize(size);
    return decoded;
  }
  return Error(ErrorCode::too_long, cat("a body of more than ", max_bytes, " bytes, decoded"), "",
               cat("send at most ", max_bytes));
}

}  // namespace motley::server
