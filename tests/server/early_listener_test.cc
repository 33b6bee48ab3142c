// What a server answers before its model is loaded.

#include "server/early_listener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "server/json_paths.h"
#include "server/test_server.h"

namespace motley::server {
namespace {

using ::testing::HasSubstr;

std::string head(std::string_view path) {
  return cat("HEAD ", path, " HTTP/1.1\r\nHost: test\r\n\r\n");
}

TEST(EarlyListener, AnswersThatItLivesAndNothingElseUntilAServiceIsAttached) {
  TestServer server;
  const std::unique_ptr<EarlyListener> listener = EarlyListener::open({}).value();
  const std::uint16_t port = listener->http().port();

  for (const std::string_view path : {"/livez", "/liveness", "//livez/"}) {
    const Received lives = ask(port, get(path));
    EXPECT_EQ(lives.status, 200) << path;
    EXPECT_EQ(lives.body, R"({"status":"alive"})");
    Client client(port);
    client.send(head(path));
    EXPECT_EQ(client.receive(true).status, 200) << path;
  }
  for (const std::string& request :
       {get("/"), get("/health"), get("/readyz"), get("/ping"), get("/metrics"), get("/v1/models"),
        get("/livez/more"), get("/nothing"), post("/livez", "{}"),
        post("/v1/completions", R"({"prompt": "x"})")}) {
    const Received refused = ask(port, request);
    EXPECT_EQ(refused.status, 503) << request;
    EXPECT_THAT(refused.error("message"), HasSubstr("the model is being loaded")) << request;
  }
  // As its clients read errors.
  const Received messages = ask(port, post("/v1/messages", "{}"));
  EXPECT_EQ(messages.status, 503);
  EXPECT_EQ(text_at(messages.json(), "type"), "error");
  EXPECT_EQ(ask(port, "no request\r\n\r\n").status, 400);

  listener->attach(server.service());
  for (const std::string_view path : {"/livez", "/liveness", "/health", "/readyz", "/v1/models"})
    EXPECT_EQ(ask(port, get(path)).status, 200) << path;
  EXPECT_EQ(ask(port, post("/livez", "{}")).status, 405);
  EXPECT_EQ(ask(port, get("/nothing")).status, 404);
  listener->http().stop();
}

// Its keys come with the service.
TEST(EarlyListener, AsksForNoKeyBeforeAServiceIsAttached) {
  TestServer server({.keys = {"secret"}});
  const std::unique_ptr<EarlyListener> listener = EarlyListener::open({}).value();
  const std::uint16_t port = listener->http().port();
  EXPECT_EQ(ask(port, get("/livez")).status, 200);
  EXPECT_EQ(ask(port, get("/v1/models")).status, 503);
  listener->attach(server.service());
  EXPECT_EQ(ask(port, get("/livez")).status, 200);
  EXPECT_EQ(ask(port, get("/v1/models")).status, 401);
  listener->http().stop();
}

}  // namespace
}  // namespace motley::server
