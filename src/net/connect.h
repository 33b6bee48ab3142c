#pragma once

#include <boost/asio/awaitable.hpp>

#include "base/result.h"
#include "net/byte_stream.h"
#include "net/server_url.h"

namespace motley::net {

// A stream to the server, on the caller's executor. A Unix socket whose queue of clients is full is
// tried again every 10 ms.
boost::asio::awaitable<Result<ByteStream>> connect(const ServerUrl& url, int tries = 200);

}  // namespace motley::net
