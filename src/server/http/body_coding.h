#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

// Bodies of requests that come compressed.
namespace motley::server {

enum class BodyCoding { none, gzip, deflate };

// What Content-Encoding names; empty where it is none of these.
std::optional<BodyCoding> body_coding(std::string_view content_encoding);

// Those that body_coding() knows, as Accept-Encoding names them.
inline constexpr std::string_view body_codings = "gzip, deflate";

// Asked before the decoded body takes so many bytes of memory more.
using BodyCharge = std::function<Result<void>(std::size_t bytes)>;

// The body as it was before it was coded; `too_long` where that has more than `max_bytes`.
Result<std::string> decode_body(std::string_view body, BodyCoding coding, std::size_t max_bytes,
                                const BodyCharge& charge);

}  // namespace motley::server
