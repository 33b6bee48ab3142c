#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "server/http/messages/message.h"

namespace motley::server {

// Decides which web pages may use the server. A browser sends requests of any page from its user's
// network, so a server without keys must distinguish its own pages from others: by Origin, which
// names the page's server, and by Host, because a DNS name that its owner points at this machine
// (DNS rebinding) makes a foreign page appear as one of the server's own.
class OriginPolicy {
 public:
  struct Options {
    std::vector<std::string> allowed = {};  // as parse_origin() returns them
    // Checks Host: there are no keys, and only programs on this machine can connect.
    bool check_host = false;
    std::string host = {};  // the listening address as it was given
  };

  OriginPolicy() = default;
  explicit OriginPolicy(Options options);

  // "*", "null", or scheme://host[:port] in lower case; or an error.
  static Result<std::string> parse_origin(std::string_view text);

  // An error if the client calls this server by a wrong name.
  std::optional<Error> check_host(const HttpHead& head) const;
  // Whether the request is from another server's page that is not allowed.
  bool is_foreign(const HttpHead& head) const;
  // Headers of an answer; empty if the page is the server's own, or may not read the answer.
  std::vector<std::pair<std::string, std::string>> headers(const HttpHead& head) const;
  // Whether the request is from another server's page that is allowed.
  bool is_allowed(std::string_view origin) const;

 private:
  Options options_;
  bool all_ = false;
  std::vector<std::string> hosts_;  // accepted names, besides localhost and addresses
};

}  // namespace motley::server
