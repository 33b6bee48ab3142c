// Any bytes as a compressed body: they are refused with a message of one line, or held within the
// limit, and charged before they take memory.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/cat.h"
#include "base/check.h"
#include "server/http/wire/body_coding.h"

namespace server = motley::server;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  // The first byte chooses the coding and how much may be charged.
  const auto coding = (data[0] & 1) == 0 ? server::BodyCoding::gzip : server::BodyCoding::deflate;
  constexpr std::size_t max_bytes = 100'000;
  const std::size_t budget = std::size_t{1024} * (data[0] >> 1);
  std::size_t charged = 0;
  const auto charge = [&](std::size_t bytes) -> motley::Result<void> {
    if (charged + bytes > budget) return motley::Error(motley::ErrorCode::busy, "full");
    charged += bytes;
    return {};
  };
  const std::string_view body(reinterpret_cast<const char*>(data + 1), size - 1);
  const auto decoded = server::decode_body(body, coding, max_bytes, charge);
  if (decoded.ok()) {
    MOTLEY_CHECK(decoded->size() <= max_bytes, "no more than may be");
    MOTLEY_CHECK(decoded->size() <= charged || body.empty(), "charged");
  } else {
    const std::string message = decoded.error().message();
    MOTLEY_CHECK(!message.empty() && message == motley::printable(message), "one printable line");
    MOTLEY_CHECK(motley::http_status(decoded.error().code()) < 500, "the client is at fault");
  }
  return 0;
}
