// Who is let in, before anything that they send is kept: keys, limits, web pages and names.

#include <algorithm>
#include <atomic>
#include <future>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "server/manual_timers.h"
#include "server/test_server.h"

namespace motley::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::string_view small_body = R"({"prompt": "x"})";

std::string head_of_post(std::string_view path, std::string_view fields) {
  return cat("POST ", path, " HTTP/1.1\r\nHost: test\r\n", fields, "\r\n");
}

// The answer to a head whose body never comes.
Received answer_to_head(const TestServer& server, std::string_view head) {
  Client client(server.port());
  client.send(head);
  return client.receive();
}

TEST(Heads, AreAnsweredWithoutTheBodyWhereItIsNotWanted) {
  TestServer server({.keys = {"secret"}});
  const std::string_view big = "Content-Length: 10000000\r\n";
  const std::string_view key = "Authorization: Bearer secret\r\n";
  EXPECT_EQ(answer_to_head(server, head_of_post("/v1/completions", big)).status, 401);
  EXPECT_EQ(answer_to_head(server, head_of_post("/v1/models", cat(big, key))).status, 405);
  EXPECT_EQ(answer_to_head(server, head_of_post("/nothing", cat(big, key))).status, 404);
  EXPECT_EQ(answer_to_head(server, head_of_post("/v1/load_lora_adapter", cat(big, key))).status,
            403);
  EXPECT_EQ(
      answer_to_head(server, cat("GET /health HTTP/1.1\r\nHost: test\r\n", big, "\r\n")).status,
      413);
  server.service().shut_down();
  EXPECT_EQ(answer_to_head(server, head_of_post("/v1/completions", cat(big, key))).status, 503);
}

TEST(Heads, AreHeardBeforeTheBodyIsAskedFor) {
  TestServer server({.keys = {"secret"}});
  const std::string_view asks = "Content-Length: 10\r\nExpect: 100-continue\r\n";
  Client client(server.port());
  client.send(head_of_post("/v1/completions", asks));
  EXPECT_THAT(client.receive_some(), HasSubstr("HTTP/1.1 401"));
  Client too_much(server.port());
  too_much.send(
      cat("GET /health HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n2000\r\n",
          std::string(0x2000, 'x')));
  EXPECT_EQ(too_much.receive().status, 413);
}

TEST(Heads, ThatAreRefusedLeaveNoBodyToBeReadAsARequest) {
  TestServer server({.keys = {"secret"}});
  Client client(server.port());
  const std::string hidden = get("/health");
  client.send(
      cat(head_of_post("/v1/completions", cat("Content-Length: ", hidden.size(), "\r\n")), hidden));
  EXPECT_EQ(client.receive().status, 401);
  EXPECT_TRUE(client.at_end());
  // Where there is no body, the connection goes on.
  Client asks(server.port());
  asks.send(cat(get("/v1/models"), get("/health")));
  EXPECT_EQ(asks.receive().status, 401);
  EXPECT_EQ(asks.receive().status, 200);
}

TEST(Bodies, OfOneAddressTakeOnlyTheirPart) {
  HttpLimits limits;
  limits.all_bodies_bytes = 4000;
  limits.address_bodies_bytes = 1500;
  // While a body of a kilobyte comes, another one fits where a key gives an address half of all.
  const auto statuses = [&](const std::vector<std::string>& keys, std::size_t bytes) {
    TestServer server({.keys = keys, .limits = limits});
    server.engine().say("x");
    const std::string request = post("/v1/completions", cat(small_body, std::string(bytes, ' ')),
                                     keys.empty() ? "" : "Authorization: Bearer key\r\n");
    Client first(server.port());
    first.send(std::string_view(request).substr(0, request.size() - 1));
    EXPECT_TRUE(eventually([&] { return server.http().stats().body_bytes > 0; }));
    const Received answer = server.ask(request);
    EXPECT_TRUE(answer.status == 200 ||
                answer.error("message").find("127.0.0.1") != std::string::npos);
    first.send(" ");
    return std::pair(first.receive().status, answer.status);
  };
  EXPECT_EQ(statuses({}, 900), std::pair(200, 429));
  EXPECT_EQ(statuses({"key"}, 900), std::pair(200, 200));
  EXPECT_EQ(statuses({"key"}, 1100), std::pair(200, 429));
}

TEST(Bodies, OfFewAddressesLeaveRoomForOthers) {
  HttpLimits limits;
  limits.all_bodies_bytes = std::size_t{32} << 20;
  limits.address_bodies_bytes = std::size_t{8} << 20;
  TestServer server({.limits = limits});
  server.engine().say("x");
  // Each holds as much as it may, and lacks its last byte.
  std::vector<std::unique_ptr<Client>> holders;
  const auto hold = [&](const std::string& address, std::size_t bytes) {
    holders.push_back(std::make_unique<Client>(server.port(), address));
    holders.back()->send(head_of_post("/v1/completions", cat("Content-Length: ", bytes, "\r\n")));
    holders.back()->send(std::string(bytes - 1, ' '));
  };
  for (const char* const address : {"127.0.0.2", "127.0.0.3", "127.0.0.4"})
    hold(address, std::size_t{8} << 20);
  hold("127.0.0.5", std::size_t{6} << 20);
  ASSERT_TRUE(
      eventually([&] { return server.http().stats().body_bytes == std::size_t{30} << 20; }));
  const auto status_from = [&](const std::string& address, std::size_t bytes) {
    Client client(server.port(), address);
    client.send(post("/v1/completions", cat(small_body, std::string(bytes, ' '))));
    return client.receive().status;
  };
  EXPECT_EQ(status_from("127.0.0.6", 70), 200);
  EXPECT_EQ(status_from("127.0.0.7", std::size_t{2} << 20), 429);
  EXPECT_EQ(status_from("127.0.0.2", 70), 429) << "the others may have no more";
}

TEST(Bodies, AreGivenBackBeforeTheAnswer) {
  TestServer server;
  server.engine().say("x");
  server.engine().hold_after(0);
  Client client(server.port());
  client.send(post("/v1/completions", small_body));
  server.engine().wait_for_submitted(1);
  EXPECT_EQ(server.http().stats().body_bytes, 0U);
  server.engine().release();
  EXPECT_EQ(client.receive().status, 200);
}

TEST(Bodies, CostWhatHasComeOfThem) {
  TestServer server;
  Client client(server.port());
  client.send(cat(head_of_post("/v1/completions", "Content-Length: 16000000\r\n"), "{"));
  EXPECT_TRUE(eventually([&] { return server.http().stats().body_bytes > 0; }));
  EXPECT_LE(server.http().stats().body_bytes, 64 << 10);
  client.send(std::string(200'000, ' '));
  EXPECT_TRUE(eventually([&] { return server.http().stats().body_bytes >= 200'000; }));
  EXPECT_LE(server.http().stats().body_bytes, 400'000);
  client.close();
  EXPECT_TRUE(eventually([&] { return server.http().stats().body_bytes == 0; }));
}

TEST(Connections, BeyondTheLimitAreTurnedAwayAndCounted) {
  const auto check = [](std::size_t all, std::size_t address, std::string_view counted) {
    HttpLimits limits;
    limits.connections = all;
    limits.address_connections = address;
    TestServer server({.limits = limits});
    std::vector<std::unique_ptr<Client>> open;
    for (int i = 0; i < 2; ++i) {
      open.push_back(std::make_unique<Client>(server.port()));
      open.back()->send(get("/health"));
      EXPECT_EQ(open.back()->receive().status, 200);
    }
    Client late(server.port());
    const Received refused = late.receive();
    EXPECT_EQ(refused.status, 503);
    EXPECT_TRUE(refused.headers.contains("retry-after"));
    EXPECT_TRUE(late.at_end());
    open[0]->send(get("/metrics"));
    const std::string metrics = open[0]->receive().body;
    EXPECT_THAT(metrics, HasSubstr("\nmotley_http_connections 2\n"));
    EXPECT_THAT(metrics, HasSubstr(cat("\nmotley_http_connections_refused_total{limit=\"", counted,
                                       "\"} 1\n")));
    open[1]->close();
    EXPECT_TRUE(eventually([&] { return server.http().connections() == 1; }));
    EXPECT_EQ(server.ask(get("/health")).status, 200);
  };
  check(2, 2, "address");
  check(2, 3, "all");
  check(3, 2, "address");
}

// Requests whose bodies do not come hold their connections.
TEST(Connections, OfTwoAddressesLeavePlacesForOthers) {
  HttpLimits limits;
  limits.connections = 32;
  limits.address_connections = 16;
  ManualTimers timers;
  TestServer server({.limits = limits, .timers = &timers});
  std::vector<std::unique_ptr<Client>> open;
  const auto come_from = [&](const std::string& address) {
    open.push_back(std::make_unique<Client>(server.port(), address));
    open.back()->send(
        "POST /v1/completions HTTP/1.1\r\nHost: test\r\nContent-Length: 9\r\n"
        "Expect: 100-continue\r\n\r\n");
  };
  const auto holds = [&](const std::string& address) {
    come_from(address);
    return open.back()->receive_some().starts_with("HTTP/1.1 100 ");
  };
  const auto refused = [&](const std::string& address) {
    come_from(address);
    return open.back()->receive().status == 503;
  };
  for (int i = 0; i < 16; ++i) EXPECT_TRUE(holds("127.0.0.2")) << i;
  for (int i = 0; i < 14; ++i) EXPECT_TRUE(holds("127.0.0.3")) << i;
  EXPECT_TRUE(refused("127.0.0.3")) << "what is left is for addresses without connections";
  EXPECT_TRUE(holds("127.0.0.4"));
  EXPECT_TRUE(refused("127.0.0.4"));
  EXPECT_TRUE(holds("127.0.0.5"));
  EXPECT_TRUE(refused("127.0.0.6")) << "all places are taken";
}

// One GET and stay, or the beginning of a request, holds no place that another address needs.
TEST(Connections, ThatWaitForTheirClientMakeRoomForAddressesWithFewer) {
  HttpLimits limits;
  limits.connections = 8;
  ManualTimers timers;
  TestServer server({.limits = limits, .timers = &timers});
  std::vector<std::unique_ptr<Client>> many;
  for (int i = 0; i < 4; ++i) {
    many.push_back(std::make_unique<Client>(server.port(), "127.0.0.2"));
    many.back()->send(get("/health"));
    EXPECT_EQ(many.back()->receive().status, 200);
    // The answer may be here before the server waits again: those that wait have an order.
    ASSERT_TRUE(eventually([&] { return server.http().stats().waiting == many.size(); }));
    if (i % 2 == 1) many.back()->send("GET /hea");
    many.push_back(std::make_unique<Client>(server.port(), "127.0.0.3"));
    many.back()->send("G");
    ASSERT_TRUE(eventually([&] { return server.http().stats().waiting == many.size(); }));
  }
  std::vector<std::unique_ptr<Client>> few;
  for (int i = 0; i < 2; ++i) {
    for (const char* const address : {"127.0.0.4", "127.0.0.5"}) {
      few.push_back(std::make_unique<Client>(server.port(), address));
      few.back()->send(get("/health"));
      EXPECT_EQ(few.back()->receive().status, 200) << address;
    }
  }
  EXPECT_EQ(server.http().stats().evicted, 4);
  EXPECT_TRUE(many[0]->at_end());
  EXPECT_TRUE(many[1]->at_end());
  few.push_back(std::make_unique<Client>(server.port(), "127.0.0.4"));
  few.back()->send(get("/health"));
  EXPECT_EQ(few.back()->receive().status, 200) << "one of 127.0.0.3 never had a request";
  Client late(server.port(), "127.0.0.4");
  EXPECT_EQ(late.receive().status, 503) << "no address has more";
  for (std::size_t i = 0; i < few.size(); ++i) {
    few[i]->send(get("/health"));
    EXPECT_EQ(few[i]->receive().status, 200) << "none of these was closed";
  }
}

TEST(Connections, ThatAreTurnedAwayGetTheirAnswerInFull) {
  HttpLimits limits;
  limits.connections = 1;
  ManualTimers timers;
  TestServer server({.limits = limits, .timers = &timers});
  Client first(server.port());
  first.send(get("/health"));
  EXPECT_EQ(first.receive().status, 200);
  Client late(server.port());
  ASSERT_TRUE(eventually([&] { return server.http().stats().refused_full == 1; }));
  // Its request arrives after the refusal, in two pieces: a closed socket would reset the second.
  const std::string request = post("/v1/completions", std::string(50'000, 'x'));
  ASSERT_TRUE(late.send(request.substr(0, 20'000)));
  EXPECT_THAT(late.receive_some(), HasSubstr("HTTP/1.1 503 "));
  EXPECT_TRUE(late.send(request.substr(20'000)));
  EXPECT_TRUE(late.at_end());
  EXPECT_EQ(server.http().connections(), 1) << "it is not counted";
}

TEST(Connections, ThatAreTurnedAwayAreFew) {
  HttpLimits limits;
  limits.connections = 1;
  ManualTimers timers;
  TestServer server({.limits = limits, .timers = &timers});
  Client first(server.port());
  first.send(get("/health"));
  EXPECT_EQ(first.receive().status, 200);
  // They stay, and no time passes: the oldest ones are closed for later ones.
  std::vector<std::unique_ptr<Client>> late;
  for (std::size_t i = 1; i <= 200; ++i) {
    late.push_back(std::make_unique<Client>(server.port()));
    ASSERT_THAT(late.back()->receive_some(), HasSubstr("HTTP/1.1 503 ")) << i;
  }
  EXPECT_TRUE(late.back()->send("x"));
  EXPECT_TRUE(eventually([&] { return !late.front()->send("x"); })) << "its end is a reset";
  first.send(get("/health"));
  EXPECT_EQ(first.receive().status, 200);
}

// The threads that serve are held in a handler: only another one can accept.
TEST(Connections, AreAcceptedWhateverTheOthersDo) {
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  std::atomic<int> held = 0;
  std::mutex mutex;
  std::vector<std::string> order;
  const auto handler = [&](Exchange& exchange) -> boost::asio::awaitable<void> {
    const std::string path = exchange.request().path;
    {
      const std::lock_guard lock(mutex);
      order.push_back(path);
    }
    if (path == "/held") {
      ++held;
      released.wait();
    }
    HttpResponse response = json_response("{}");
    co_await exchange.send(std::move(response));
  };
  const auto server =
      HttpServer::listen(
          {.threads = 1},
          {.handler = handler,
           .admit = [](const HttpHead&) { return HeadVerdict(); },
           .refuse = [](const Error&, const HttpHead&) { return json_response("{}"); }})
          .value();
  server->start();
  std::vector<std::unique_ptr<Client>> ahead;
  std::string pipeline = get("/held");
  for (int i = 0; i < 100; ++i) pipeline += get("/ahead");
  for (int i = 0; i < 20; ++i) {
    ahead.push_back(std::make_unique<Client>(server->port()));
    ahead.back()->send(pipeline);
  }
  EXPECT_TRUE(eventually([&] { return held == 1; }));
  Client late(server->port());
  late.send(get("/late"));
  EXPECT_TRUE(eventually([&] { return server->connections() == 21; }));
  release.set_value();
  EXPECT_EQ(late.receive().status, 200);
  {
    // Of some 2000 requests that were there before it.
    const std::lock_guard lock(mutex);
    const auto before = std::ranges::find(order, "/late") - order.begin();
    EXPECT_LT(before, 200);
  }
  server->stop();
}

TEST(Connections, ThatNeverSpokeMakeRoom) {
  HttpLimits limits;
  limits.connections = 2;
  TestServer server({.limits = limits});
  Client oldest(server.port());
  EXPECT_TRUE(eventually([&] { return server.http().connections() == 1; }));
  Client older(server.port());
  EXPECT_TRUE(eventually([&] { return server.http().connections() == 2; }));
  Client speaks(server.port());
  speaks.send(get("/health"));
  EXPECT_EQ(speaks.receive().status, 200);
  EXPECT_TRUE(oldest.at_end());
  older.send(get("/health"));
  EXPECT_EQ(older.receive().status, 200);
  EXPECT_EQ(server.http().stats().evicted, 1);
}

TEST(WebPages, OfOtherServersAreNotLetIn) {
  TestServer server;
  server.engine().say("x");
  const auto status = [&](std::string_view headers) {
    const Received reply = server.ask(post("/v1/completions", small_body, headers));
    EXPECT_FALSE(reply.headers.contains("access-control-allow-origin"));
    return reply.status;
  };
  EXPECT_EQ(status(""), 200);
  EXPECT_EQ(status("Origin: http://test\r\n"), 200) << "our own page";
  EXPECT_EQ(status("Origin: http://evil.example\r\n"), 403);
  EXPECT_EQ(status("Origin: http://evil.example\r\nContent-Type: text/plain\r\n"), 403);
  EXPECT_EQ(status("Origin: null\r\n"), 403);
  const Received preflight = server.ask(
      "OPTIONS /v1/completions HTTP/1.1\r\nHost: test\r\nOrigin: http://evil.example\r\n"
      "Access-Control-Request-Method: POST\r\n\r\n");
  for (const auto& [name, value] : preflight.headers)
    EXPECT_THAT(name, Not(HasSubstr("access-control")));
  const Received models = server.ask(get("/v1/models", "Origin: http://evil.example\r\n"));
  EXPECT_FALSE(models.headers.contains("access-control-allow-origin"));
}

TEST(WebPages, ThatSendAKeyAreLetInWhateverAGatewayCallsUs) {
  TestServer server({.keys = {"key"}});
  server.engine().say("x");
  const std::string_view origin = "Origin: https://gateway.example\r\n";
  EXPECT_EQ(
      server.ask(post("/v1/completions", small_body, cat(origin, "Authorization: Bearer key\r\n")))
          .status,
      200);
  EXPECT_EQ(server.ask(post("/v1/completions", small_body, origin)).status, 401);
}

TEST(WebPages, OfOriginsThatAreNamedAre) {
  TestServer server({.adapter_loading = true, .origins = {.allowed = {"https://app.example"}}});
  server.engine().say("x");
  const std::string_view origin = "Origin: https://app.example\r\n";
  const Received preflight =
      server.ask(cat("OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: test\r\n", origin, "\r\n"));
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.headers.at("access-control-allow-origin"), "https://app.example");
  EXPECT_THAT(preflight.headers.at("access-control-allow-headers"), HasSubstr("Authorization"));
  const Received reply = server.ask(post("/v1/completions", small_body, origin));
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.headers.at("access-control-allow-origin"), "https://app.example");
  EXPECT_EQ(reply.headers.at("vary"), "Origin");
  const Received wrong = server.ask(post("/nothing", small_body, origin));
  EXPECT_EQ(wrong.status, 404);
  const Received bad = server.ask(post("/v1/completions", "{}", origin));
  EXPECT_EQ(bad.headers.at("access-control-allow-origin"), "https://app.example")
      << "pages may read what was wrong";
  EXPECT_EQ(server.ask(post("/v1/completions", small_body, "Origin: https://app.example.evil\r\n"))
                .status,
            403);
  EXPECT_EQ(server.ask(post("/v1/load_lora_adapter", "{}", origin)).status, 403);
}

TEST(Proxies, SpeakForTheirClients) {
  HttpLimits limits;
  limits.connections = 64;
  limits.address_connections = 2;
  TestServer server({.limits = limits, .proxies = TrustedProxies::parse("127.0.0.8/29").value()});
  server.engine().say("x");
  const auto client_of = [&](const std::string& peer, std::string_view fields) {
    Client client(server.port(), peer);
    client.send(post("/v1/completions", small_body, fields));
    EXPECT_EQ(client.receive().status, 200);
    return server.engine().last_request().client;
  };
  EXPECT_EQ(client_of("127.0.0.9", "X-Forwarded-For: 6.6.6.6, 203.0.113.9\r\n"), "203.0.113.9");
  EXPECT_EQ(client_of("127.0.0.9", "X-Forwarded-For: 203.0.113.9, 127.0.0.10\r\n"), "203.0.113.9");
  EXPECT_EQ(client_of("127.0.0.9", ""), "127.0.0.9");
  EXPECT_EQ(client_of("127.0.0.1", "X-Forwarded-For: 203.0.113.9\r\n"), "127.0.0.1");
  // A proxy connects for many: the bound of an address is not its own.
  std::vector<std::unique_ptr<Client>> open;
  const auto status_from = [&](const std::string& address) {
    open.push_back(std::make_unique<Client>(server.port(), address));
    open.back()->send(get("/health"));
    return open.back()->receive().status;
  };
  for (int i = 0; i < 10; ++i) EXPECT_EQ(status_from("127.0.0.9"), 200) << i;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(status_from("127.0.0.2"), i < 2 ? 200 : 503) << i;
}

TEST(Proxies, BodiesCountForTheForwardedClient) {
  HttpLimits limits;
  limits.address_bodies_bytes = 1500;
  TestServer server({.limits = limits, .proxies = TrustedProxies::parse("127.0.0.1").value()});
  server.engine().say("x");
  const std::string from_first = "X-Forwarded-For: 203.0.113.1\r\n";
  const std::string body = cat(small_body, std::string(900, ' '));
  const std::string held = post("/v1/completions", body, from_first);
  Client first(server.port());
  first.send(std::string_view(held).substr(0, held.size() - 1));
  ASSERT_TRUE(eventually([&] { return server.http().stats().body_bytes > 0; }));
  const Received refused = server.ask(held);
  EXPECT_EQ(refused.status, 429);
  EXPECT_THAT(refused.error("message"), HasSubstr("requests from 203.0.113.1 may hold"));
  EXPECT_EQ(server.ask(post("/v1/completions", body, "X-Forwarded-For: 203.0.113.2\r\n")).status,
            200);
}

// The guide's nginx: the server listens on this machine without keys, and is known by a name.
TEST(Proxies, MakeALocalServersPageKnownByAName) {
  TestServer server(
      {.origins = {.check_host = true}, .proxies = TrustedProxies::parse("127.0.0.1").value()});
  server.engine().say("x");
  const std::string forwarded = "X-Forwarded-For: 203.0.113.9\r\n";
  const auto ask = [&](std::string_view line, std::string_view fields, std::string_view body) {
    return server
        .ask(cat(line, " HTTP/1.1\r\n", fields, "Content-Length: ", body.size(), "\r\n\r\n", body))
        .status;
  };
  const std::string named = cat("Host: llm.example\r\n", forwarded);
  EXPECT_EQ(ask("GET /", named, ""), 200);
  const std::string page = "Origin: https://llm.example\r\n";
  EXPECT_EQ(ask("POST /v1/completions", cat(named, page), small_body), 200);
  const std::string inner =
      cat("Host: 127.0.0.1:8000\r\nX-Forwarded-Host: llm.example\r\n", forwarded);
  EXPECT_EQ(ask("POST /v1/completions", cat(inner, page), small_body), 200);
  const std::string foreign = "Origin: https://evil.example\r\n";
  EXPECT_EQ(ask("POST /v1/completions", cat(named, foreign), small_body), 403);
  EXPECT_EQ(ask("POST /v1/completions", cat(inner, foreign), small_body), 403);
  EXPECT_EQ(ask("GET /", "Host: llm.example\r\n", ""), 403) << "not forwarded";
}

TEST(Names, OfALocalServerAreChecked) {
  TestServer server({.origins = {.check_host = true}});
  server.engine().say("x");
  const auto status = [&](std::string_view host) {
    return server
        .ask(cat("POST /v1/completions HTTP/1.1\r\nHost: ", host, "\r\nOrigin: http://", host,
                 "\r\nContent-Length: ", small_body.size(), "\r\n\r\n", small_body))
        .status;
  };
  EXPECT_EQ(status("localhost:1234"), 200);
  EXPECT_EQ(status("127.0.0.1:1234"), 200);
  EXPECT_EQ(status("[::1]"), 200);
  EXPECT_EQ(status("rebound.example:1234"), 403);
  const Received page = server.ask("GET / HTTP/1.1\r\nHost: rebound.example\r\n\r\n");
  EXPECT_EQ(page.status, 403);
  EXPECT_THAT(page.error("message"), HasSubstr("--api-key-file"));
}

}  // namespace
}  // namespace motley::server
