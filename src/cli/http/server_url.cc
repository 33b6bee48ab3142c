#include "cli/http/server_url.h"

#include <charconv>
#include <cstdint>

#include "base/cat.h"

namespace motley::cli {
namespace {

Error wrong_url(std::string_view text, std::string fix) {
  return {ErrorCode::invalid_argument,
          cat("not a server's address: ", quote(text)),
          {},
          std::move(fix)};
}

}  // namespace

Result<ServerUrl> ServerUrl::parse(std::string_view text) {
  constexpr std::string_view scheme = "http://";
  if (text.starts_with("https://")) return wrong_url(text, "TLS is not spoken; use http://");
  if (!text.starts_with(scheme)) return wrong_url(text, "write http://HOST:PORT");
  std::string_view rest = text.substr(scheme.size());
  ServerUrl url;
  if (const std::size_t slash = rest.find('/'); slash != rest.npos) {
    std::string_view prefix = rest.substr(slash);
    while (prefix.ends_with('/')) prefix.remove_suffix(1);
    url.prefix = prefix;
    rest = rest.substr(0, slash);
  }
  // [::1]:8000
  const std::size_t bracket = rest.rfind(']');
  const std::size_t colon = rest.find(':', bracket == rest.npos ? 0 : bracket);
  if (colon != rest.npos) {
    const std::string_view port = rest.substr(colon + 1);
    std::uint16_t number = 0;
    const auto parsed = std::from_chars(port.data(), port.data() + port.size(), number);
    if (parsed.ec != std::errc() || parsed.ptr != port.data() + port.size())
      return wrong_url(text, "the port is a number up to 65535");
    url.port = port;
    rest = rest.substr(0, colon);
  }
  if (rest.starts_with('[') && rest.ends_with(']')) rest = rest.substr(1, rest.size() - 2);
  if (rest.empty()) return wrong_url(text, "write http://HOST:PORT");
  url.host = rest;
  return url;
}

}  // namespace motley::cli
