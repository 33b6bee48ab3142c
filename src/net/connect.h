#pragma once

#include <boost/asio/awaitable.hpp>

#include "base/result.h"
#include "net/byte_stream.h"
#include "net/server_url.h"

namespace motley::net {

// A stream to the server, on the caller's executor.
boost::asio::awaitable<Result<ByteStream>> connect(const ServerUrl& url);

}  // namespace motley::net
