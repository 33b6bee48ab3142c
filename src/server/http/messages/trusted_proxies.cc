#include "server/http/messages/trusted_proxies.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/cat.h"
#include "net/byte_stream.h"

namespace motley::server {
namespace {

namespace ip = boost::asio::ip;

// The bits of a mapped address before those of IPv4.
constexpr int mapped_bits = 96;

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// Without zones, ports and brackets.
std::optional<ip::address> parse_address(std::string_view text) {
  if (text.find('%') != std::string_view::npos) return std::nullopt;
  boost::system::error_code failure;
  ip::address address = ip::make_address(std::string(text), failure);
  if (failure) return std::nullopt;
  return address;
}

ip::address_v6::bytes_type bytes_of(const ip::address& address) {
  return address.is_v6() ? address.to_v6().to_bytes()
                         : ip::make_address_v6(ip::v4_mapped, address.to_v4()).to_bytes();
}

}  // namespace

Result<TrustedProxies::Network> TrustedProxies::parse_network(std::string_view text) {
  const Error wrong(ErrorCode::invalid_argument, cat("no address or network: ", quote(text)),
                    "--trusted-proxies", "write them like 127.0.0.1,10.0.0.0/8,fd00::/8");
  const std::size_t slash = text.find('/');
  const auto address = parse_address(text.substr(0, slash));
  if (!address) return wrong;
  const int before = address->is_v4() ? mapped_bits : 0;
  Network network{.bytes = bytes_of(*address)};
  if (slash != std::string_view::npos) {
    const std::string_view digits = text.substr(slash + 1);
    int bits = 0;
    const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), bits);
    if (failure != std::errc() || end != digits.data() + digits.size() || bits < 0 ||
        bits > 128 - before)
      return wrong;
    network.bits = before + bits;
  }
  return network;
}

Result<TrustedProxies> TrustedProxies::parse(std::string_view list) {
  TrustedProxies proxies;
  while (true) {
    const std::size_t comma = list.find(',');
    const std::string_view entry = trimmed(list.substr(0, comma));
    if (entry == "unix") {
      proxies.unix_ = true;
    } else {
      MOTLEY_TRY(const Network network, parse_network(entry));
      proxies.networks_.push_back(network);
    }
    if (comma == std::string_view::npos) return proxies;
    list.remove_prefix(comma + 1);
  }
}

void TrustedProxies::add(TrustedProxies more) {
  networks_.insert(networks_.end(), more.networks_.begin(), more.networks_.end());
  unix_ = unix_ || more.unix_;
}

bool TrustedProxies::trust(const ip::address& address) const {
  if (networks_.empty()) return false;
  const auto bytes = bytes_of(address);
  const auto holds = [&](const Network& network) {
    for (int bit = 0; bit < network.bits; bit += 8) {
      const int unused = std::max(0, 8 - (network.bits - bit));
      const auto at = static_cast<std::size_t>(bit / 8);
      if ((bytes[at] ^ network.bytes[at]) >> unused != 0) return false;
    }
    return true;
  };
  return std::ranges::any_of(networks_, holds);
}

std::optional<ip::address> TrustedProxies::client_of(const net::Peer& peer,
                                                     std::string_view forwarded_for) const {
  std::optional<ip::address> client = peer.address;
  while (!forwarded_for.empty() && (client ? trust(*client) : unix_)) {
    const std::size_t comma = forwarded_for.rfind(',');
    const std::size_t begin = comma == std::string_view::npos ? 0 : comma + 1;
    const auto address = parse_address(trimmed(forwarded_for.substr(begin)));
    if (!address) break;
    client = address;
    forwarded_for = forwarded_for.substr(0, begin == 0 ? 0 : comma);
  }
  return client;
}

void TrustedProxies::describe_client(const net::Peer& peer, const ForwardedFields& fields,
                                     HttpHead& head) const {
  head.address = peer.client;
  head.unix_socket = peer.kind == net::Peer::Kind::unix_socket;
  if (!trust(peer)) return;
  head.forwarded = !fields.forwarded_for.empty() || !fields.forwarded_host.empty();
  if (const auto client = client_of(peer, fields.forwarded_for))
    head.address = net::client_address(*client);
  // Of a chain of proxies, the first has seen the name that the client uses.
  const std::string_view host =
      trimmed(std::string_view(fields.forwarded_host).substr(0, fields.forwarded_host.find(',')));
  if (!host.empty()) head.host = std::string(host);
}

}  // namespace motley::server
