// What a schema asks for and no grammar holds: said in the head of the answer, or refused where the
// schema is strict.

#include <gtest/gtest.h>

#include "server/http_client.h"
#include "server/json_paths.h"
#include "server/test_server.h"

namespace motley::server {
namespace {

const std::string open_schema =
    R"({"type": "object", "properties": {"tags": {"type": "array", "uniqueItems": true,
        "items": {"type": "string"}}}, "required": ["tags"]})";
const std::string chat = R"("messages": [{"role": "user", "content": "x"}])";

std::string unenforced(const Received& received) {
  const auto found = received.headers.find("x-motley-unenforced");
  return found == received.headers.end() ? "" : found->second;
}

std::string form(std::string_view strict) {
  return cat("{", chat, R"(, "response_format": {"type": "json_schema", "json_schema": {"name": "n",
             "strict": )",
             strict, ", \"schema\": ", open_schema, "}}}");
}

std::string tools(std::string_view choice, std::string_view strict) {
  return cat("{", chat, R"(, "tools": [{"type": "function", "function": {"name": "other"}},
             {"type": "function", "function": {"name": "f", "strict": )",
             strict, ", \"parameters\": ", open_schema, R"(}}], "tool_choice": )", choice, "}");
}

TEST(Unenforced, IsNamedInTheHeadOfTheAnswer) {
  TestServer server;
  server.engine().say("{}");
  const Received chats = server.ask(post("/v1/chat/completions", form("false")));
  EXPECT_EQ(chats.status, 200);
  EXPECT_EQ(unenforced(chats), "response_format.json_schema.schema.properties.tags.uniqueItems");
  for (const std::string key : {"guided_json", "structured_outputs"}) {
    const bool nested = key == "structured_outputs";
    const Received answer = server.ask(post(
        "/v1/completions", cat(R"({"prompt": "x", ")", key, "\": ", nested ? "{\"json\": " : "",
                               open_schema, nested ? "}}" : "}")));
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(unenforced(answer), cat(key, nested ? ".json" : "", ".properties.tags.uniqueItems"));
  }
  EXPECT_EQ(unenforced(server.ask(post("/v1/chat/completions", tools("\"required\"", "false")))),
            "tools[1].function.parameters.properties.tags.uniqueItems");
  EXPECT_EQ(unenforced(server.ask(post("/v1/chat/completions", tools("\"auto\"", "false")))), "")
      << "no grammar holds what the model calls by itself";
}

TEST(Unenforced, IsRefusedByNameWhereTheSchemaIsStrict) {
  TestServer server;
  const Received refused = server.ask(post("/v1/chat/completions", form("true")));
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.error("param"),
            "response_format.json_schema.schema.properties.tags.uniqueItems");
  const Received called = server.ask(post(
      "/v1/chat/completions", tools(R"({"type": "function", "function": {"name": "f"}})", "true")));
  EXPECT_EQ(called.status, 400);
  EXPECT_EQ(called.error("param"), "tools[1].function.parameters.properties.tags.uniqueItems");
  const Received response = server.ask(
      post("/v1/responses", cat(R"({"input": "x", "text": {"format": {"type": "json_schema",
           "name": "n", "strict": true, "schema": )",
                                open_schema, "}}}")));
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(response.error("param"), "text.format.schema.properties.tags.uniqueItems");
}

TEST(Unenforced, ASchemaThatNothingSatisfiesIsRefused) {
  TestServer server;
  const Received refused = server.ask(
      post("/v1/completions", R"({"prompt": "x", "guided_json": {"type": "string", "enum": []}})"));
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.error("param"), "guided_json");
}

}  // namespace
}  // namespace motley::server
