#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

// Decodes compressed request bodies.
namespace motley::server {

enum class BodyCoding { none, gzip, deflate };

// Parses a Content-Encoding; nothing if it is not supported.
std::optional<BodyCoding> body_coding(std::string_view content_encoding);

// The supported codings, for Accept-Encoding.
inline constexpr std::string_view body_codings = "gzip, deflate";

// Called before the decoded body takes this many more bytes of memory.
using BodyCharge = std::function<Result<void>(std::size_t bytes)>;

// Decodes a body; `too_long` if the result has more than `max_bytes`.
Result<std::string> decode_body(std::string_view body, BodyCoding coding, std::size_t max_bytes,
                                const BodyCharge& charge);

}  // namespace motley::server
