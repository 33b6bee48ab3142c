#include "net/server_url.h"

#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"

namespace motley::net {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(ServerUrl, IsTakenApart) {
  const auto parts = [](std::string_view text) {
    const ServerUrl url = ServerUrl::parse(text).value();
    return std::vector{url.host, url.port, url.prefix};
  };
  EXPECT_THAT(parts("http://localhost:8000"), ElementsAre("localhost", "8000", ""));
  EXPECT_THAT(parts("http://a.example/some/path/"), ElementsAre("a.example", "80", "/some/path"));
  EXPECT_THAT(parts("http://[::1]:9/"), ElementsAre("::1", "9", ""));
  for (const char* wrong :
       {"https://a", "localhost:8000", "http://", "http://:80", "http://a:b", "http://a:70000"})
    EXPECT_FALSE(ServerUrl::parse(wrong).ok()) << wrong;
}

TEST(ServerUrl, MayBeAUnixSocket) {
  const ServerUrl url = ServerUrl::parse("unix:/run/a:b/socket").value();
  EXPECT_EQ(url.unix_socket, "/run/a:b/socket");
  EXPECT_EQ(url.authority(), "localhost");
  EXPECT_EQ(url.shown(), "unix:/run/a:b/socket");
  EXPECT_EQ(ServerUrl::parse("unix:socket")->unix_socket, "socket");
  EXPECT_EQ(ServerUrl::parse("unix:///run/socket")->unix_socket.native(), "/run/socket");
  for (const char* wrong : {"unix:", "unix://", "unix://run/socket", "unix://localhost/run/socket"})
    EXPECT_FALSE(ServerUrl::parse(wrong).ok()) << wrong;
  EXPECT_THAT(ServerUrl::parse("unix://run/socket").error().message(),
              HasSubstr("unix:/run/motley/socket"));
  EXPECT_THAT(ServerUrl::parse(cat("unix:/", std::string(107, 'x'))).error().message(),
              HasSubstr("at most 107 bytes"));
}

TEST(ServerUrl, NamesTheServerAsItWasGiven) {
  EXPECT_EQ(ServerUrl::parse("http://[::1]:9")->authority(), "[::1]:9");
  EXPECT_EQ(ServerUrl::parse("http://a.example/x")->shown(), "http://a.example:80");
}

}  // namespace
}  // namespace motley::net
