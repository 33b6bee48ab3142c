#include "server/http/messages/trusted_proxies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "net/byte_stream.h"
#include "server/http/messages/request_head.h"

namespace motley::server {
namespace {

using ::testing::HasSubstr;

boost::asio::ip::address address(const char* text) { return boost::asio::ip::make_address(text); }

net::Peer peer_of(const char* text) {
  return {.name = text, .client = net::client_address(address(text)), .address = address(text)};
}

std::string client(const TrustedProxies& proxies, const char* peer, std::string_view forwarded) {
  return proxies.client_of(peer_of(peer), forwarded).value().to_string();
}

TEST(TrustedProxies, AreAddressesAndNetworks) {
  const TrustedProxies proxies =
      TrustedProxies::parse("127.0.0.1, 10.0.0.0/8,192.168.4.0/22,fd00::/9,::1").value();
  for (const char* const one : {"127.0.0.1", "::ffff:127.0.0.1", "10.255.1.2", "192.168.4.0",
                                "192.168.7.255", "fd7f:1::2", "::1"})
    EXPECT_TRUE(proxies.trust(address(one))) << one;
  for (const char* const one :
       {"127.0.0.2", "11.0.0.0", "192.168.3.255", "192.168.8.0", "fd80::1", "::2", "::10.0.0.1"})
    EXPECT_FALSE(proxies.trust(address(one))) << one;
  EXPECT_TRUE(TrustedProxies::parse("0.0.0.0/0").value().trust(address("203.0.113.9")));
  EXPECT_FALSE(TrustedProxies::parse("0.0.0.0/0").value().trust(address("2001:db8::1")));
  EXPECT_FALSE(TrustedProxies().trust(address("127.0.0.1")));
}

TEST(TrustedProxies, SpeakForClientsThroughAUnixSocket) {
  const net::Peer peer{.kind = net::Peer::Kind::unix_socket,
                       .name = "unix:user:33:pid:7",
                       .client = "user:33",
                       .address = std::nullopt};
  const auto described = [&](std::string_view list, std::string_view fields) {
    RequestHead head = parse_head(cat("GET / HTTP/1.1\r\nHost: here\r\n", fields, "\r\n")).value();
    TrustedProxies::parse(list).value().describe_client(peer, head.forwarded, head.head);
    return cat(head.head.address, head.head.forwarded ? " forwarded" : "");
  };
  EXPECT_EQ(described("127.0.0.1", "X-Forwarded-For: 1.1.1.1\r\n"), "user:33");
  EXPECT_EQ(described("unix", ""), "user:33");
  EXPECT_EQ(described("unix", "X-Forwarded-For: 1.1.1.1\r\n"), "1.1.1.1 forwarded");
  EXPECT_EQ(described("unix", "X-Forwarded-For: none\r\n"), "user:33 forwarded");
  EXPECT_EQ(described("10.0.0.7, unix", "X-Forwarded-For: 1.1.1.1, 10.0.0.7\r\n"),
            "1.1.1.1 forwarded");
}

TEST(TrustedProxies, RefuseWhatIsNoNetwork) {
  for (const char* const text :
       {"", "localhost", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/8x", "fd00::/129",
        "fe80::1%eth0", "10.0.0.0/8,", "10"}) {
    const auto parsed = TrustedProxies::parse(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_THAT(parsed.error().message(), HasSubstr("--trusted-proxies")) << text;
  }
}

TEST(TrustedProxies, NameTheRightMostClientThatIsNoProxy) {
  const TrustedProxies proxies = TrustedProxies::parse("127.0.0.1,10.0.0.0/8").value();
  EXPECT_EQ(client(proxies, "127.0.0.1", "203.0.113.9"), "203.0.113.9");
  EXPECT_EQ(client(proxies, "127.0.0.1", "1.1.1.1, 203.0.113.9"), "203.0.113.9")
      << "a client may send the field itself";
  EXPECT_EQ(client(proxies, "127.0.0.1", "1.1.1.1, 203.0.113.9 ,\t10.0.0.7"), "203.0.113.9");
  EXPECT_EQ(client(proxies, "127.0.0.1", "10.0.0.9, 10.0.0.7"), "10.0.0.9");
  EXPECT_EQ(client(proxies, "127.0.0.1", "2001:db8::5"), "2001:db8::5");
  EXPECT_EQ(client(proxies, "127.0.0.1", ""), "127.0.0.1");
  EXPECT_EQ(client(proxies, "203.0.113.1", "1.1.1.1"), "203.0.113.1") << "no proxy of ours";
}

TEST(TrustedProxies, BelieveNothingLeftOfAMalformedEntry) {
  const TrustedProxies proxies = TrustedProxies::parse("127.0.0.1,10.0.0.0/8").value();
  for (const char* const wrong :
       {"unknown", "1.1.1", "1.1.1.1:80", "[2001:db8::1]", "", "fe80::1%1", "1.1.1.1 2.2.2.2"}) {
    EXPECT_EQ(client(proxies, "127.0.0.1", wrong), "127.0.0.1") << wrong;
    EXPECT_EQ(client(proxies, "127.0.0.1", cat("1.1.1.1,", wrong, ",10.0.0.7")), "10.0.0.7")
        << wrong;
  }
}

TEST(TrustedProxies, DescribeTheClientInAHead) {
  const TrustedProxies proxies = TrustedProxies::parse("127.0.0.1").value();
  const auto described = [&](const char* peer, std::string_view fields) {
    RequestHead head = parse_head(cat("GET / HTTP/1.1\r\nHost: here\r\n", fields, "\r\n")).value();
    proxies.describe_client(peer_of(peer), head.forwarded, head.head);
    return cat(head.head.address, " ", head.head.host, head.head.forwarded ? " forwarded" : "");
  };
  EXPECT_EQ(described("127.0.0.1", ""), "127.0.0.1 here");
  EXPECT_EQ(described("127.0.0.1", "X-Forwarded-For: 2001:db8:1:2::5\r\n"),
            "2001:db8:1:2::/64 here forwarded");
  EXPECT_EQ(described("127.0.0.1",
                      "X-Forwarded-For: 1.1.1.1\r\nx-forwarded-for: 2.2.2.2\r\n"
                      "X-Forwarded-Host: llm.example, inner\r\n"),
            "2.2.2.2 llm.example forwarded")
      << "lines of a list are one list";
  EXPECT_EQ(described("127.0.0.9", "X-Forwarded-For: 1.1.1.1\r\nX-Forwarded-Host: evil\r\n"),
            "127.0.0.9 here");
}

}  // namespace
}  // namespace motley::server
