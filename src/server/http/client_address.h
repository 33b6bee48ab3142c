#pragma once

#include <string>

#include <boost/asio/ip/address.hpp>

namespace motley::server {

// What limits by client count by: an address of IPv4, or the first 64 bits of one of IPv6, of which
// a client commonly has all the rest.
std::string client_address(const boost::asio::ip::address& address);

}  // namespace motley::server
