// motley bench --url against a server whose engine gives set tokens.

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/check.h"
#include "base/json/json.h"
#include "cli/run_motley.h"
#include "server/test_server.h"

namespace motley::cli {
namespace {

using testing::HasSubstr;

Outcome bench(const server::TestServer& server, const std::vector<std::string>& more) {
  std::vector<std::string> words = {"bench",
                                    "--url",
                                    cat("http://127.0.0.1:", server.port()),
                                    "--prompt-tokens",
                                    "4-8",
                                    "--output-tokens",
                                    "3",
                                    "--requests",
                                    "40"};
  words.insert(words.end(), more.begin(), more.end());
  return motley(words);
}

TEST(BenchUrl, CountsWhatTheServerStreams) {
  server::TestServer server;
  server.engine().say("one two three four five six");
  const Outcome outcome = bench(server, {"--concurrency", "1,8", "--rate", "5000", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const std::vector<json::Value> cases = lines(outcome.output);
  ASSERT_EQ(cases.size(), 3U);
  for (const json::Value& each : cases) {
    EXPECT_EQ(number(each, "requests"), 40);
    EXPECT_EQ(number(each, "failed"), 0);
    // Three tokens of each request, whatever pieces they came in.
    EXPECT_NEAR(number(each, "tokens_per_second") / number(each, "requests_per_second"), 3, 1e-9);
  }
  EXPECT_EQ(server.engine().last_request().max_tokens, 3);
  EXPECT_TRUE(server.engine().last_request().sampling.ignore_eos);
}

TEST(BenchUrl, SaysWhatTheServerRefuses) {
  server::TestServer server;
  server.engine().refuse(Error(ErrorCode::busy, "the queue is full"));
  const Outcome outcome = bench(server, {});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.errors, HasSubstr("40 of 40 requests failed"));
  EXPECT_THAT(outcome.errors, HasSubstr("the queue is full"));
  EXPECT_THAT(outcome.output, HasSubstr("(40 failed)"));
}

TEST(BenchUrl, SendsTheKey) {
  const TemporaryFolder folder;
  const std::string keys = (folder.path() / "keys").string();
  std::ofstream(keys) << "secret\n";
  server::TestServer server({.keys = {"secret"}});
  server.engine().say("one two three");
  EXPECT_THAT(bench(server, {}).errors, HasSubstr("401"));
  const Outcome outcome = bench(server, {"--api-key-file", keys});
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
}

// A port that is taken, so that no server can be there, and on which no socket listens.
class SilentPort {
 public:
  SilentPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    MOTLEY_CHECK(::bind(socket_, any, size) == 0 && ::getsockname(socket_, any, &size) == 0,
                 "a port of this machine");
    port_ = ntohs(address.sin_port);
  }
  ~SilentPort() { ::close(socket_); }
  SilentPort(const SilentPort&) = delete;
  SilentPort& operator=(const SilentPort&) = delete;

  std::uint16_t port() const { return port_; }

 private:
  int socket_;
  std::uint16_t port_ = 0;
};

TEST(BenchUrl, SaysIfNoServerListens) {
  const SilentPort silent;
  const std::string url = cat("http://127.0.0.1:", silent.port());
  const Outcome outcome = motley({"bench", "--url", url});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.errors, HasSubstr(url));
}

}  // namespace
}  // namespace motley::cli
