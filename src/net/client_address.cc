#include "net/client_address.h"

#include <algorithm>

#include "base/cat.h"

namespace motley::net {

std::string client_address(const boost::asio::ip::address& address) {
  namespace ip = boost::asio::ip;
  if (address.is_v4()) return address.to_string();
  const ip::address_v6 whole = address.to_v6();
  if (whole.is_v4_mapped()) return ip::make_address_v4(ip::v4_mapped, whole).to_string();
  ip::address_v6::bytes_type bytes = whole.to_bytes();
  std::fill(bytes.begin() + 8, bytes.end(), static_cast<unsigned char>(0));
  return cat(ip::address_v6(bytes).to_string(), "/64");
}

}  // namespace motley::net
