#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "server/http/message.h"

namespace motley::server {

// Which web pages may use the server. A browser lends every page it shows its network and address,
// so a server without keys must tell its own pages from others': by Origin, which names the page's
// server, and by Host, because a name that its owner points at this machine (DNS rebinding) makes a
// page of theirs one of ours.
class OriginPolicy {
 public:
  struct Options {
    std::vector<std::string> allowed = {};  // as parse_origin() gives them
    // Hosts are checked: no key is asked for, and only programs of this machine can connect.
    bool check_host = false;
    std::string host = {};  // where we listen, as it was given
  };

  OriginPolicy() = default;
  explicit OriginPolicy(Options options);

  // "*", "null", or scheme://host[:port] in small letters; or why it is none of these.
  static Result<std::string> parse_origin(std::string_view text);

  // What is wrong with the name by which the client calls us.
  std::optional<Error> check_host(const HttpHead& head) const;
  // Whether a page of another server asks, and is not allowed to.
  bool is_foreign(const HttpHead& head) const;
  // For an answer; none where the page is no other's, or not allowed to read it.
  std::vector<std::pair<std::string, std::string>> headers(const HttpHead& head) const;
  // Whether a page of another server asks that is allowed to.
  bool is_allowed(std::string_view origin) const;

 private:
  Options options_;
  bool all_ = false;
  std::vector<std::string> hosts_;  // names that are accepted beside localhost and addresses
};

}  // namespace motley::server
