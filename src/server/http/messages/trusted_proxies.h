#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/ip/address.hpp>

#include "base/result.h"
#include "net/byte_stream.h"
#include "server/http/messages/message.h"

namespace motley::server {

// What a proxy says about the client of a request.
struct ForwardedFields {
  std::string forwarded_for;   // of X-Forwarded-For, all lines joined by commas
  std::string forwarded_host;  // of X-Forwarded-Host
};

// The proxies whose word about a client is taken.
class TrustedProxies {
 public:
  TrustedProxies() = default;

  // Addresses and networks ("10.0.0.0/8, ::1"), separated by commas; "unix": who connects to the
  // Unix socket.
  static Result<TrustedProxies> parse(std::string_view list);
  void add(TrustedProxies more);

  bool trust(const boost::asio::ip::address& address) const;
  bool trust(const net::Peer& peer) const {
    return peer.kind == net::Peer::Kind::unix_socket ? unix_ : peer.address && trust(*peer.address);
  }

  // The client of a request: the right-most forwarded address that is no trusted proxy. A malformed
  // entry, and all that stands left of it, counts for nothing. The peer where it is not trusted.
  std::optional<boost::asio::ip::address> client_of(const net::Peer& peer,
                                                    std::string_view forwarded_for) const;

  // Sets what a request's head says about its client, by its peer.
  void describe_client(const net::Peer& peer, const ForwardedFields& fields, HttpHead& head) const;

 private:
  struct Network {
    boost::asio::ip::address_v6::bytes_type bytes{};  // IPv4 as a mapped address
    int bits = 128;
  };

  static Result<Network> parse_network(std::string_view text);

  std::vector<Network> networks_;
  bool unix_ = false;
};

}  // namespace motley::server
