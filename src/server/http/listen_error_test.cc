#include <gtest/gtest.h>

#include "server/http/http_server.h"

namespace motley::server {
namespace {

std::string message(const HttpServer::Options& options, boost::system::errc::errc_t failure) {
  return HttpServer::listen_error(options, make_error_code(failure)).message();
}

TEST(ListenError, BlamesTheOptionThatIsWrong) {
  HttpServer::Options options;
  options.host = "10.9.9.9";
  options.port = 8000;
  EXPECT_EQ(message(options, boost::system::errc::address_not_available),
            "'10.9.9.9' is no address of this machine (--host): give one that it has, such as "
            "127.0.0.1; 0.0.0.0 is all of them");
  options.host = "127.0.0.1";
  EXPECT_EQ(message(options, boost::system::errc::address_in_use),
            "can't listen on 127.0.0.1:8000: Address already in use (--port): free the port, or "
            "choose another; 0 lets the system choose");
  options.port = 80;
  EXPECT_EQ(message(options, boost::system::errc::permission_denied),
            "can't listen on 127.0.0.1:80: Permission denied (--port): ports below 1024 are "
            "root's: choose another, such as 8000, or allow the program to (setcap "
            "cap_net_bind_service=+ep)");
}

// An address that is kept for documentation is no machine's.
TEST(ListenError, AnAddressOfAnotherMachineIsNotListenedOn) {
  HttpServer::Options options;
  options.host = "192.0.2.1";
  options.port = 0;
  const auto server = HttpServer::listen(options, {});
  ASSERT_FALSE(server.ok());
  EXPECT_EQ(server.error().where(), "--host");
}

}  // namespace
}  // namespace motley::server
