#include "net/server_url.h"

#include <charconv>
#include <cstdint>

#include "base/cat.h"
#include "net/unix_socket.h"

namespace motley::net {
namespace {

constexpr std::string_view unix_scheme = "unix:";

Error wrong_url(std::string_view text, std::string fix) {
  return {ErrorCode::invalid_argument,
          cat("not a server's address: ", quote(text)),
          {},
          std::move(fix)};
}

Result<ServerUrl> parse_unix(std::string_view text) {
  const auto path = unix_socket_path(text);
  if (!path) return wrong_url(text, "write unix:PATH, such as unix:/run/motley/socket");
  ServerUrl url{.unix_socket = *path};
  if (url.unix_socket.native().size() > max_socket_path_bytes)
    return wrong_url(text, cat("the path has at most ", max_socket_path_bytes, " bytes"));
  return url;
}

}  // namespace

std::optional<std::string_view> unix_socket_path(std::string_view url) {
  if (!url.starts_with(unix_scheme)) return std::nullopt;
  std::string_view path = url.substr(unix_scheme.size());
  if (path.starts_with("//")) {  // and the name of no host
    path.remove_prefix(2);
    if (!path.starts_with('/')) return std::nullopt;
  }
  if (path.empty()) return std::nullopt;
  return path;
}

Result<ServerUrl> ServerUrl::parse(std::string_view text) {
  constexpr std::string_view scheme = "http://";
  if (text.starts_with(unix_scheme)) return parse_unix(text);
  if (text.starts_with("https://")) return wrong_url(text, "TLS is not spoken; use http://");
  if (!text.starts_with(scheme)) return wrong_url(text, "write http://HOST:PORT or unix:PATH");
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
  if (rest.empty()) return wrong_url(text, "write http://HOST:PORT or unix:PATH");
  url.host = rest;
  return url;
}

std::string ServerUrl::authority() const {
  if (!unix_socket.empty()) return "localhost";
  const bool ipv6 = host.find(':') != std::string::npos;
  return cat(ipv6 ? "[" : "", host, ipv6 ? "]:" : ":", port);
}

std::string ServerUrl::shown() const {
  return unix_socket.empty() ? cat("http://", authority()) : cat(unix_scheme, unix_socket.native());
}

Error ServerUrl::failed(std::string_view doing, std::string_view why) const {
  return {ErrorCode::io, cat("can't ", doing, ": ", why), shown(),
          "check the address, and that the server runs"};
}

}  // namespace motley::net
