#include "server/routes/origin_policy.h"

#include <algorithm>

#include <boost/asio/ip/address.hpp>

#include "base/ascii.h"
#include "base/cat.h"

namespace motley::server {
namespace {

struct Authority {
  std::string host;  // in lower case; IPv6 without brackets
  std::string port;

  bool operator==(const Authority&) const = default;
};

Authority authority_of(std::string_view text, std::string_view default_port) {
  const std::size_t bracket = text.rfind(']');
  const std::size_t colon = text.find(':', bracket == std::string_view::npos ? 0 : bracket);
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host.ends_with('.')) host.remove_suffix(1);
  const std::string_view port =
      colon == std::string_view::npos ? default_port : text.substr(colon + 1);
  return {.host = ascii::lower(host), .port = std::string(port)};
}

struct Origin {
  std::string_view scheme;
  std::string_view authority;
};

Origin split(std::string_view origin) {
  const std::size_t mark = origin.find("://");
  if (mark == std::string_view::npos) return {};
  return {.scheme = origin.substr(0, mark), .authority = origin.substr(mark + 3)};
}

// A proxy may use TLS where this server does not, so the scheme only determines the port.
bool is_same_origin(std::string_view origin, std::string_view host) {
  const Origin parts = split(origin);
  if (parts.authority.empty()) return false;
  const std::string_view port = ascii::lower(parts.scheme) == "https" ? "443" : "80";
  return authority_of(parts.authority, port) == authority_of(host, port);
}

bool is_address(const std::string& host) {
  boost::system::error_code failure;
  boost::asio::ip::make_address(host, failure);
  return !failure;
}

bool is_word(std::string_view text, std::string_view more) {
  return !text.empty() && std::ranges::all_of(text, [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           more.find(c) != std::string_view::npos;
  });
}

}  // namespace

OriginPolicy::OriginPolicy(Options options) : options_(std::move(options)) {
  all_ = std::ranges::find(options_.allowed, "*") != options_.allowed.end();
  if (!options_.host.empty()) hosts_.push_back(ascii::lower(options_.host));
  // Behind a proxy, the host of an allowed origin may also be this server's name.
  for (const std::string& origin : options_.allowed)
    hosts_.push_back(authority_of(split(origin).authority, "").host);
}

Result<std::string> OriginPolicy::parse_origin(std::string_view text) {
  std::string origin = ascii::lower(text);
  const Origin parts = split(origin);
  const bool named = is_word(parts.scheme, "+-.") && is_word(parts.authority, "-._:[]");
  if (origin == "*" || origin == "null" || named) return origin;
  return Error(ErrorCode::invalid_argument, cat("no origin of web pages: ", quote(text)),
               "--cors-origin", "write it like https://app.example:8443, without a path, or *");
}

std::optional<Error> OriginPolicy::check_host(const HttpHead& head) const {
  // A proxy makes the server known to others than this machine, by names of its own. A browser
  // reaches no Unix socket.
  if (!options_.check_host || all_ || head.forwarded || head.unix_socket || head.host.empty())
    return std::nullopt;
  const std::string host = authority_of(head.host, "").host;
  if (host == "localhost" || is_address(host) || std::ranges::find(hosts_, host) != hosts_.end())
    return std::nullopt;
  return Error(ErrorCode::forbidden,
               cat("the server is called by a name that it does not know: ", quote(head.host)), "",
               "ask for localhost or 127.0.0.1, or start the server with --api-key-file or with "
               "this name at --host or in a --cors-origin");
}

bool OriginPolicy::is_foreign(const HttpHead& head) const {
  return !head.origin.empty() && !is_same_origin(head.origin, head.host) &&
         !is_allowed(head.origin);
}

bool OriginPolicy::is_allowed(std::string_view origin) const {
  if (origin.empty()) return false;
  return all_ ||
         std::ranges::find(options_.allowed, ascii::lower(origin)) != options_.allowed.end();
}

std::vector<std::pair<std::string, std::string>> OriginPolicy::headers(const HttpHead& head) const {
  if (all_) return {{"Access-Control-Allow-Origin", "*"}};
  std::vector<std::pair<std::string, std::string>> list;
  // Caches must not give one page the answer for another.
  if (!options_.allowed.empty()) list.emplace_back("Vary", "Origin");
  if (is_allowed(head.origin)) list.emplace_back("Access-Control-Allow-Origin", head.origin);
  return list;
}

}  // namespace motley::server
