// What clients that mean no good, or are broken, get: the right status, and a server unharmed.

#include <sys/resource.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "server/manual_timers.h"
#include "server/test_server.h"

namespace motley::server {
namespace {

using ::testing::HasSubstr;

void expect_unharmed(const TestServer& server) {
  EXPECT_EQ(server.ask(get("/health")).status, 200);
}

std::string nested(int depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(HostileBodies, GetTheStatusAndTheFieldAtFault) {
  TestServer server;
  server.engine().say("x");
  struct Case {
    std::string body;
    int status;
    std::string param;
  };
  const std::string prompt = R"({"prompt": "x", )";
  const std::vector<Case> cases = {
      {"", 400, "null"},
      {"{", 400, "null"},
      {"[]", 400, "null"},
      {"null", 400, "null"},
      {"{\"prompt\": \"x\"} trailing", 400, "null"},
      {"{\"prompt\": \"\xff\xfe\"}", 400, "null"},
      {"{\"prompt\": \"\\ud800\"}", 400, "null"},
      {cat("{\"prompt\": ", nested(100'000), "}"), 400, "null"},
      {R"({"prompt": "x", "prompt": "y"})", 400, "null"},
      {R"({})", 400, "prompt"},
      {R"({"prompt": 7})", 400, "prompt"},
      {R"({"prompt": []})", 400, "prompt"},
      {R"({"prompt": ""})", 400, "prompt"},
      {R"({"prompt": [[]]})", 400, "prompt[0]"},
      {R"({"prompt": ["x", 3]})", 400, "prompt[1]"},
      {R"({"prompt": [1, -1]})", 400, "prompt[1]"},
      {R"({"prompt": [1, 99999999999999999999]})", 400, "prompt[1]"},
      {R"({"prompt": [1, 2.5]})", 400, "prompt[1]"},
      {prompt + R"("temperature": NaN})", 400, "null"},
      {prompt + R"("temperature": 1e999})", 400, "null"},
      {prompt + R"("temperature": -0.1})", 400, "temperature"},
      {prompt + R"("temperature": "hot"})", 400, "temperature"},
      {prompt + R"("max_tokens": 1e300})", 400, "max_tokens"},
      {prompt + R"("max_tokens": -1})", 400, "max_tokens"},
      {prompt + R"("max_tokens": 1.5})", 400, "max_tokens"},
      {prompt + R"("n": 0})", 400, "n"},
      {prompt + R"("n": 1000000000})", 400, "n"},
      {prompt + R"("top_p": 1.1})", 400, "top_p"},
      {prompt + R"("logprobs": 21})", 400, "logprobs"},
      {prompt + R"("logit_bias": {"x": 1}})", 400, "logit_bias"},
      {prompt + R"("logit_bias": {"7": 1, "07": 1}})", 400, "logit_bias"},
      {prompt + R"("logit_bias": {"7": "a"}})", 400, "logit_bias.7"},
      {prompt + R"("logit_bias": [1]})", 400, "logit_bias"},
      {prompt + R"("stop": [""]})", 400, "stop"},
      {prompt + R"("stop": [1]})", 400, "stop[0]"},
      {prompt + R"("stop_token_ids": [-5]})", 400, "stop_token_ids[0]"},
      {prompt + R"("stream": 1})", 400, "stream"},
      {prompt + R"("stream": true, "stream_options": 3})", 400, "stream_options"},
      {prompt + R"("stream_options": "x"})", 400, "stream_options"},
      {prompt + R"("stream": false, "stream_options": []})", 400, "stream_options"},
      {prompt + R"("request_id": "a b"})", 400, "request_id"},
      {prompt + R"("request_id": ""})", 400, "request_id"},
      {prompt + R"("request_id": 7})", 400, "request_id"},
      {cat(prompt, R"("cache_salt": ")", std::string(1025, 's'), "\"}"), 400, "cache_salt"},
      {prompt + R"("suffix": "end"})", 400, "suffix"},
      {prompt + R"("model": "base:"})", 404, "model"},
      {prompt + R"("model": "../../etc/passwd"})", 404, "model"},
      {prompt + R"("model": 3})", 400, "model"},
      {prompt + R"("adapters": [{"scale": 1}]})", 400, "adapters[0].name"},
      {prompt + R"("adapters": [{"name": "a", "scale": 1e9}]})", 400, "adapters[0].scale"},
      {prompt + R"("response_format": {"type": "xml"}})", 400, "response_format.type"},
      {prompt + R"("guided_json": 3})", 400, "guided_json"},
      {prompt + R"("guided_regex": "a", "guided_choice": ["b"]})", 400, "guided_choice"},
      {cat(R"({"prompt": ")", std::string(20'000, 'a'), "\"}"), 400, "prompt"},
  };
  for (const Case& each : cases) {
    const Received reply = server.ask(post("/v1/completions", each.body));
    const std::string shown = each.body.substr(0, 80);
    ASSERT_EQ(reply.status, each.status) << shown << "\n" << reply.body;
    EXPECT_EQ(reply.error("param"), each.param) << shown << "\n" << reply.body;
  }
  expect_unharmed(server);
}

TEST(HostileBodies, OfChatsLikewise) {
  TestServer server;
  server.engine().say("x");
  const std::string user = R"("messages": [{"role": "user", "content": "x"}])";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({})", "messages"},
      {R"({"messages": []})", "messages"},
      {R"({"messages": {}})", "messages"},
      {R"({"messages": [3]})", "messages[0]"},
      {R"({"messages": [{}]})", "messages[0].role"},
      {R"({"messages": [{"role": 4}]})", "messages[0].role"},
      {R"({"messages": [{"role": "user"}]})", "messages[0].content"},
      {R"({"messages": [{"role": "user", "content": "x"}, {"role": "user", "name": "n"}]})",
       "messages[1].content"},
      {R"({"messages": [{"role": "user", "content": 5}]})", "messages[0].content"},
      {R"({"messages": [{"role": "user", "content": {"text": "x"}}]})", "messages[0].content"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})",
       "messages[0].content"},
      {cat("{", user, R"(, "chat_template_kwargs": []})"), "chat_template_kwargs"},
      {cat("{", user, R"(, "add_generation_prompt": 1})"), "add_generation_prompt"},
      {cat("{", user, R"(, "documents": ["x"]})"), "documents[0]"},
      {cat("{", user, R"(, "top_logprobs": 3})"), "top_logprobs"},
      {cat("{", user, R"(, "logprobs": 3})"), "logprobs"},
      {cat("{", user, R"(, "max_tokens": -1})"), "max_tokens"},
      {cat("{", user, R"(, "tools": [{}]})"), "tools[0].function"},
      {cat("{", user, R"(, "tools": [{"function": {}}]})"), "tools[0].function.name"},
      {cat("{", user, R"(, "tools": 1})"), "tools"},
      {cat("{", user, R"(, "parallel_tool_calls": 1})"), "parallel_tool_calls"},
      {cat("{", user, R"(, "tool_choice": "required"})"), "tool_choice"},
      {cat("{", user, R"(, "tool_choice": "sometimes"})"), "tool_choice"},
      {cat("{", user, R"(, "tool_choice": {"function": {"name": "no"}}})"),
       "tool_choice.function.name"},
  };
  for (const auto& [body, param] : cases) {
    const Received reply = server.ask(post("/v1/chat/completions", body));
    ASSERT_EQ(reply.status, 400) << body << "\n" << reply.body;
    EXPECT_EQ(reply.error("param"), param) << body << "\n" << reply.body;
  }
  expect_unharmed(server);
}

TEST(HostileBodies, ThatAreTooLongAreRefusedBeforeTheyCome) {
  TestServer server;
  Client declares(server.port());
  declares.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n");
  EXPECT_EQ(declares.receive().status, 413);

  // A hundred megabytes that no header has announced. The server may stop listening on the way.
  Client pours(server.port());
  pours.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string chunk = cat("100000\r\n", std::string(0x100000, 'a'), "\r\n");
  for (int i = 0; i < 100 && pours.send(chunk); ++i) {
  }
  EXPECT_EQ(pours.receive().status, 413);
  expect_unharmed(server);
}

TEST(HostileBodies, TogetherAreBounded) {
  HttpLimits limits;
  limits.body_bytes = 1000;
  limits.all_bodies_bytes = 1500;
  TestServer server({.limits = limits});
  const std::string head =
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n";
  server.engine().say("x");
  // The first holds its bytes until it is read, so the second finds too little memory.
  Client first(server.port());
  const std::string body = R"({"prompt": "x"})";
  first.send(cat(head, body, std::string(999 - body.size(), ' ')));
  ASSERT_TRUE(eventually([&] { return server.http().stats().body_bytes > 0; }));
  Client second(server.port());
  second.send(cat(head, std::string(1000, ' ')));
  EXPECT_EQ(second.receive().status, 429);
  first.send(" ");
  EXPECT_EQ(first.receive().status, 200);
  EXPECT_EQ(server.ask(post("/v1/completions", R"({"prompt": "x"})")).status, 200);
}

TEST(HostileBodies, ThatWaitToBeAskedAreAsked) {
  TestServer server;
  server.engine().say("x");
  Client client(server.port());
  const std::string body = R"({"prompt": "x"})";
  client.send(
      cat("POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
          "Content-Length: ",
          body.size(), "\r\n\r\n"));
  EXPECT_THAT(client.receive_some(), HasSubstr("100 Continue"));
  client.send(body);
  EXPECT_EQ(client.receive().status, 200);
}

TEST(HostileHeads, GetTheirStatusAndNothingElse) {
  TestServer server;
  const std::vector<std::pair<std::string, int>> cases = {
      {"nonsense\r\n\r\n", 400},
      {std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) + "\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
      {"GET / HTTP/3.0\r\nHost: a\r\n\r\n", 400},
      {"GET /\tx HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", 400},
      {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
       400},
      {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 400},
      {"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
      {"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"
       "0\r\n\r\n",
       501},
      {"POST /v1/completions HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 2"
       "\r\n\r\n{}",
       400},
      {"GET /health HTTP/1.1\nHost: a\n\n", 400},
      {"GET /health HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n", 400},
      {"\x16\x03\x01", 400},
      {cat("GET / HTTP/1.1\r\nHost: a\r\nX: ", std::string(100'000, 'x'), "\r\n\r\n"), 413},
      {cat("GET /", std::string(40'000, 'x'), " HTTP/1.1\r\nHost: a\r\n\r\n"), 414},
      {cat("GET /", std::string(100'000, 'x'), " HTTP/1.1\r\nHost: a\r\n\r\n"), 414},
      {cat("GET /", std::string(20'000, 'x'), " HTTP/1.1\r\nHost: a\r\n\r\n"), 404},
      {cat("GET /", std::string(20'000, 'x'),
           " HTTP/1.1\r\nHost: a\r\nX: ", std::string(20'000, 'x'), "\r\n\r\n"),
       413},
      {"CONNECT elsewhere:443 HTTP/1.1\r\nHost: a\r\n\r\n", 404},
      {"GET /../../etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n", 404},
      {"GET http://elsewhere/ HTTP/1.1\r\nHost: a\r\n\r\n", 404},
      {"BREW /health HTTP/1.1\r\nHost: a\r\n\r\n", 405},
  };
  for (const auto& [request, status] : cases) {
    Client client(server.port());
    client.send(request);
    EXPECT_EQ(client.receive().status, status) << request.substr(0, 80);
  }
  EXPECT_EQ(server.ask(get("/health", "X-Request-Id: a\x01\r\n")).status, 400);
  const Received id = server.ask(get("/health", "X-Request-Id: a b\r\n"));
  EXPECT_EQ(id.status, 200);
  EXPECT_NE(id.headers.at("x-request-id"), "a b");
  expect_unharmed(server);
}

TEST(HostileConnections, SlowSendersAreCut) {
  using std::chrono::seconds;
  ManualTimers timers;
  TestServer server({.timers = &timers});
  Client in_head(server.port());
  Client in_body(server.port());
  Client silent(server.port());
  timers.wait_for_timers(3, seconds(30));
  timers.advance(seconds(1));
  in_head.send("POST /v1/completions HTTP/1.1\r\nHos");
  in_body.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{");
  timers.wait_for_timers(2, seconds(30));
  timers.advance(seconds(29));
  EXPECT_TRUE(silent.at_end());
  silent.close();
  ASSERT_TRUE(eventually([&] { return server.http().connections() == 2; }))
      << "a request has its time from its first byte on";
  timers.advance(seconds(1));
  EXPECT_EQ(in_head.receive().status, 408);
  EXPECT_EQ(in_body.receive().status, 408);
  expect_unharmed(server);
}

// No timer is waited for.
TEST(HostileConnections, ThatEndInsideARequestAreClosed) {
  ManualTimers timers;
  TestServer server({.timers = &timers});
  const std::string whole = post("/v1/completions", R"({"prompt": "x"})");
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{9}, whole.size() - 3}) {
    Client client(server.port());
    client.send(whole.substr(0, bytes));
    client.half_close();
    EXPECT_TRUE(client.at_end()) << bytes;
  }
  expect_unharmed(server);
}

TEST(HostileConnections, ReadersThatStopAreCut) {
  ManualTimers timers;
  HttpLimits limits;
  limits.stream_backlog_bytes = std::size_t{1} << 30;  // it is the time that cuts
  TestServer server({.limits = limits, .timers = &timers});
  // Several times what the buffers between the two take, of events that cost little to write; the
  // answer does not end by itself.
  server.engine().say(std::vector<std::int32_t>(110, 100));
  server.engine().hold_after(100);
  Client client(server.port(), 64 << 10);
  client.send(
      post("/v1/completions", R"({"prompt": "x", "stream": true, "n": 64, "max_tokens": 110})"));
  server.engine().wait_for_submitted(1);
  // The client still holds its end: only the server can end this connection.
  ASSERT_TRUE(eventually([&] {
    timers.advance(HttpLimits().write_time);
    return server.http().connections() == 0;
  })) << "a connection whose client reads nothing";
  server.engine().wait_for_ended(1);
  EXPECT_EQ(server.engine().cancelled(), 1);
  expect_unharmed(server);
}

TEST(HostileConnections, OfClientsThatAreGoneAreNoticedBehindFullBuffers) {
  ManualTimers timers;
  TestServer server({.timers = &timers});
  server.engine().say("x");
  server.engine().hold_after(0);
  Client client(server.port());
  client.send(post("/v1/completions", R"({"prompt": "x"})"));
  server.engine().wait_for_submitted(1);
  // Far more than the connection keeps of what was sent ahead.
  std::string ahead;
  while (ahead.size() < std::size_t{300} << 10) ahead += get("/health");
  ASSERT_TRUE(client.send(ahead));
  client.close();
  server.engine().wait_for_ended(1);
  EXPECT_EQ(server.engine().cancelled(), 1);
  EXPECT_TRUE(eventually([&] { return server.http().connections() == 0; }));
  expect_unharmed(server);
}

TEST(HostileConnections, ThatSendFarAheadGetTheAnswerAndTheEnd) {
  TestServer server;
  server.engine().say("x");
  server.engine().hold_after(0);
  Client client(server.port());
  client.send(post("/v1/completions", R"({"prompt": "x"})"));
  server.engine().wait_for_submitted(1);
  ASSERT_TRUE(client.send(std::string(std::size_t{300} << 10, 'x')));
  client.half_close();
  // The server has read to the end of what was sent.
  EXPECT_THAT(client.receive_some(), HasSubstr("100 Continue"));
  server.engine().release();
  const Received reply = client.receive();
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.headers.at("connection"), "close");
  EXPECT_TRUE(client.at_end());
}

TEST(HostileConnections, AThousandSilentOnesDelayNoOther) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, 4096);
  ::setrlimit(RLIMIT_NOFILE, &files);
  TestServer server;
  server.engine().say("x");
  std::vector<std::unique_ptr<Client>> silent;
  for (int i = 0; i < 1000; ++i) {
    silent.push_back(std::make_unique<Client>(server.port()));
    if (i % 2 == 0) silent.back()->send("POST /v1/comp");
  }
  EXPECT_EQ(server.ask(post("/v1/completions", R"({"prompt": "x"})")).status, 200);
}

TEST(HostilePaths, OfModelsMayBeAnyBytes) {
  TestServer server;
  for (const std::string_view name : {"%ff%fe", "%00", "a%00b", "%C3", "base:%ff"}) {
    const Received reply = server.ask(get(cat("/v1/models/", name)));
    EXPECT_EQ(reply.status, 400) << name;
    EXPECT_THAT(reply.error("message"), HasSubstr("no UTF-8, or holds NUL")) << name;
  }
  for (const std::string_view name :
       {"a%0d%0aSet-Cookie:%20x", "..%2f..%2fetc", "%", "%zz", "base:"}) {
    const Received reply = server.ask(get(cat("/v1/models/", name)));
    EXPECT_EQ(reply.status, 404) << name;
    EXPECT_EQ(reply.error("param"), "model") << name;
    EXPECT_FALSE(reply.headers.contains("set-cookie")) << name;
  }
}

TEST(HostileBodies, OfAdapterRoutesGetTheFieldAtFault) {
  TestServer server({.adapter_loading = true});
  const std::string name = R"({"lora_name": "x", )";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{}", "lora_name"},
      {R"({"lora_name": 3, "lora_path": "/tmp"})", "lora_name"},
      {R"({"lora_name": "", "lora_path": "/tmp"})", "lora_name"},
      {R"({"lora_name": "a,b", "lora_path": "/tmp"})", "lora_name"},
      {R"({"lora_name": "a\u0000b", "lora_path": "/tmp"})", "lora_name"},
      {cat(R"({"lora_path": "/tmp", "lora_name": ")", std::string(201, 'a'), "\"}"), "lora_name"},
      {name + R"("lora_path": 3})", "lora_path"},
      {name + R"("lora_path": ["/tmp"]})", "lora_path"},
      {name + R"("lora_path": "/tmp", "load_inplace": "yes"})", "load_inplace"},
      {name + R"("lora_path": "/tmp", "pinned": 1})", "pinned"},
      {name + R"("lora_path": "/tmp", "path": "/etc"})", "path"},
  };
  for (const auto& [body, param] : cases) {
    const Received reply = server.ask(post("/v1/load_lora_adapter", body));
    ASSERT_EQ(reply.status, 400) << body << "\n" << reply.body;
    EXPECT_EQ(reply.error("param"), param) << body << "\n" << reply.body;
  }
  EXPECT_EQ(server.ask(post("/v1/unload_lora_adapter", R"({"lora_name": [1]})")).error("param"),
            "lora_name");
  expect_unharmed(server);
}

TEST(HostilePaths, OfAdaptersStayInsideTheRoot) {
  TemporaryFolder folder;
  const auto root = folder / "root";
  std::filesystem::create_directories(root / "good");
  std::filesystem::create_directories(root / "leaks");
  std::filesystem::create_directories(folder / "outside");
  std::filesystem::create_directories(folder / "root-beside");
  std::filesystem::create_directory_symlink(folder / "outside", root / "link");
  std::filesystem::create_symlink("/etc/passwd", root / "leaks" / "adapter_config.json");
  std::filesystem::create_symlink(root / "loop", root / "loop");
  TestServer server({.adapter_loading = true, .adapter_root = root});
  const auto status = [&](std::string_view path) {
    json::Object body;
    body.add("lora_name", "x");
    body.add("lora_path", path);
    body.add("load_inplace", true);
    return server.ask(post("/v1/load_lora_adapter", json::write(body))).status;
  };
  const auto message = [&](std::string_view path) {
    json::Object body;
    body.add("lora_name", "y");
    body.add("lora_path", path);
    return server.ask(post("/v1/load_lora_adapter", json::write(body))).error("message");
  };
  for (const std::string_view path : {"missing", "../outside", "link", "leaks", "loop"}) {
    EXPECT_EQ(message(path).find(folder.path().string()), std::string::npos) << message(path);
    EXPECT_NE(message(path).find(path), std::string::npos) << message(path);
  }
  EXPECT_EQ(status("good"), 200);
  EXPECT_EQ(
      server.ask("GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n").body.find(folder.path().string()),
      std::string::npos);
  EXPECT_EQ(status((root / "good").string()), 200);
  EXPECT_EQ(status("good/../good/."), 200);
  EXPECT_EQ(status("missing"), 404);
  EXPECT_EQ(status("../outside"), 400);
  EXPECT_EQ(status("../missing"), 400);
  EXPECT_EQ(status("../root-beside"), 400);
  EXPECT_EQ(status("/etc"), 400);
  EXPECT_EQ(status("link"), 400);
  EXPECT_EQ(status("link/../../outside"), 400);
  EXPECT_EQ(status("leaks"), 400);
  EXPECT_EQ(status("loop"), 400);
  EXPECT_EQ(status(""), 400);
  EXPECT_EQ(status(std::string("good\0x", 6)), 400);
  EXPECT_EQ(status(std::string(5000, 'a')), 400);
  for (const char* const file : {"adapter_config.json", "adapter_model.safetensors"})
    std::ofstream(root / "good" / file) << "{}";
  server.engine().refuse_adapters(
      {ErrorCode::bad_file, "no tensor", cat("adapter 'y', ", (root / "good").string(), ", x")});
  EXPECT_EQ(message("good"), "adapter 'y', good, x: no tensor (lora_path)");
}

}  // namespace
}  // namespace motley::server
