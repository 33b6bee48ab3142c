#include "server/routes/origin_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace motley::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

HttpHead head(std::string host, std::string origin = {}) {
  HttpHead head;
  head.host = std::move(host);
  head.origin = std::move(origin);
  return head;
}

TEST(OriginPolicy, KnowsItsOwnPages) {
  const OriginPolicy policy;
  for (const auto& [host, origin] :
       std::vector<std::pair<std::string, std::string>>{{"localhost:8000", "http://localhost:8000"},
                                                        {"LocalHost:8000", "http://localhost:8000"},
                                                        {"[::1]:8000", "http://[::1]:8000"},
                                                        {"example.com", "https://example.com"},
                                                        {"example.com:443", "https://example.com"},
                                                        {"example.com", "http://example.com:80"}})
    EXPECT_FALSE(policy.is_foreign(head(host, origin))) << host << " " << origin;
  for (const auto& [host, origin] : std::vector<std::pair<std::string, std::string>>{
           {"localhost:8000", "http://localhost:8001"},
           {"localhost:8000", "http://evil.example"},
           {"localhost:8000", "http://evil.example/localhost:8000"},
           {"localhost:8000", "null"},
           {"localhost:8000", "localhost:8000"},
           {"example.com", "https://example.com.evil.example"},
           {"", "http://"}})
    EXPECT_TRUE(policy.is_foreign(head(host, origin))) << host << " " << origin;
  EXPECT_FALSE(policy.is_foreign(head("localhost:8000"))) << "no page asks";
}

TEST(OriginPolicy, TellsOnlyThoseAllowedThatTheyAre) {
  const OriginPolicy policy({.allowed = {"https://app.example"}});
  EXPECT_FALSE(policy.is_foreign(head("x", "https://App.example")));
  EXPECT_THAT(policy.headers(head("x", "https://app.example")),
              ElementsAre(Pair("Vary", "Origin"),
                          Pair("Access-Control-Allow-Origin", "https://app.example")));
  EXPECT_TRUE(policy.is_foreign(head("x", "https://app.example:8443")));
  EXPECT_THAT(policy.headers(head("x", "http://app.example")), ElementsAre(Pair("Vary", "Origin")));
  EXPECT_THAT(OriginPolicy().headers(head("x", "https://app.example")), IsEmpty());
  const OriginPolicy all({.allowed = {"*"}});
  EXPECT_FALSE(all.is_foreign(head("x", "null")));
  EXPECT_THAT(all.headers(head("x", "http://a")),
              ElementsAre(Pair("Access-Control-Allow-Origin", "*")));
}

TEST(OriginPolicy, TakesOriginsAsBrowsersWriteThem) {
  EXPECT_EQ(OriginPolicy::parse_origin("https://App.Example:8443").value(),
            "https://app.example:8443");
  EXPECT_EQ(OriginPolicy::parse_origin("*").value(), "*");
  EXPECT_EQ(OriginPolicy::parse_origin("http://[::1]:80").value(), "http://[::1]:80");
  for (const std::string_view text :
       {"", "app.example", "https://", "https://app.example/", "https://a b", "https://*.example"})
    EXPECT_FALSE(OriginPolicy::parse_origin(text).ok()) << text;
}

TEST(OriginPolicy, OfALocalServerKnowsItsNames) {
  const OriginPolicy policy(
      {.allowed = {"https://proxied.example"}, .check_host = true, .host = "workstation"});
  for (const std::string_view host :
       {"localhost", "localhost:8000", "LOCALHOST.:1", "127.0.0.1:8000", "127.8.9.1", "[::1]:8000",
        "workstation:8000", "proxied.example", "192.168.0.7:8000", ""})
    EXPECT_FALSE(policy.check_host(head(std::string(host)))) << host;
  for (const std::string_view host :
       {"evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example",
        "127.0.0.1@evil.example", "workstation.evil.example"})
    EXPECT_TRUE(policy.check_host(head(std::string(host)))) << host;
  EXPECT_FALSE(OriginPolicy().check_host(head("evil.example")));
}

}  // namespace
}  // namespace motley::server
