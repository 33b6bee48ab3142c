#pragma once

#include <string>

#include <boost/asio/ip/address.hpp>

namespace motley::net {

// The address by which clients are limited: an IPv4 address, or the first 64 bits of an IPv6
// address, since a client commonly has all the rest.
std::string client_address(const boost::asio::ip::address& address);

}  // namespace motley::net
