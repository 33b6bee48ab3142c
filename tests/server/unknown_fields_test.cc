// Fields that this server does not know: clients send those of other servers, and of later
// versions.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/http_client.h"
#include "server/test_server.h"

namespace motley::server {
namespace {

using ::testing::EndsWith;

const std::string chat = R"("messages": [{"role": "user", "content": "x"}])";

std::string ignored(const Received& received) {
  const auto found = received.headers.find("x-motley-ignored");
  return found == received.headers.end() ? "" : found->second;
}

TEST(UnknownFields, AreIgnoredAndNamedInTheHead) {
  TestServer server;
  server.engine().say("x");
  const Received answer =
      server.ask(post("/v1/chat/completions",
                      cat("{", chat, R"(, "temprature": 1, "stream_options": null, "odd\nname": 0,
                "response_format": {"type": "text", "kind": 3}, "absent": null})")));
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(ignored(answer), "response_format.kind, temprature, odd\\nname");
  const Received text =
      server.ask(post("/v1/completions", R"({"prompt": "x", "odd": [{}], "stream": true})"));
  EXPECT_EQ(text.status, 200);
  EXPECT_EQ(ignored(text), "odd");
  EXPECT_EQ(ignored(server.ask(post("/v1/completions", R"({"prompt": "x", "user": "me"})"))), "");
}

TEST(UnknownFields, ThatAreManyAreNamedInPart) {
  TestServer server;
  server.engine().say("x");
  std::string body = R"({"prompt": "x")";
  for (int i = 0; i < 5000; ++i) body += cat(", \"", std::string(90, 'f'), i, "\": 1");
  const Received answer = server.ask(post("/v1/completions", body + "}"));
  EXPECT_EQ(answer.status, 200);
  EXPECT_LT(ignored(answer).size(), 1100U);
  EXPECT_THAT(ignored(answer), EndsWith(", ..."));
  // Short names fit into the header, and are too many for the list.
  std::string shorter = cat("{", chat);
  for (int i = 0; i < 40; ++i) shorter += cat(", \"f", i, "\": 1");
  EXPECT_THAT(ignored(server.ask(post("/v1/chat/completions", shorter + "}"))),
              EndsWith(", f31, ..."));
}

TEST(UnknownFields, AreRefusedByNameWhereTheServerIsStrict) {
  TestServer server({.strict_fields = true});
  server.engine().say("x");
  const Received chats = server.ask(
      post("/v1/chat/completions", cat("{", chat, R"(, "response_format": {"kind": 1}})")));
  EXPECT_EQ(chats.status, 400);
  EXPECT_EQ(chats.error("param"), "response_format.type");
  for (const auto& [body, param] : std::initializer_list<std::pair<std::string, std::string>>{
           {cat("{", chat, R"(, "message": []})"), "message"},
           {cat("{", chat, R"(, "stream": true, "stream_options": {"odd": 1}})"),
            "stream_options.odd"}}) {
    const Received refused = server.ask(post("/v1/chat/completions", body));
    EXPECT_EQ(refused.status, 400) << body;
    EXPECT_EQ(refused.error("param"), param) << body;
  }
  const Received refused =
      server.ask(post("/v1/completions", R"({"prompt": "x", "temprature": 1})"));
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.error("param"), "temprature");
  EXPECT_EQ(server.ask(post("/v1/completions", R"({"prompt": "x", "odd": null})")).status, 200);
}

}  // namespace
}  // namespace motley::server
