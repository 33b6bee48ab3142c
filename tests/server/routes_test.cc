// What a row of the table of routes gives: over handlers of the test's own, behind the front that
// the server has (connections, the table, the admission of requests).

#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "server/http/http_server.h"
#include "server/http_client.h"
#include "server/routes/request_admission.h"
#include "server/test_server.h"

namespace motley::server {
namespace {

using ::testing::HasSubstr;

// Keeps texts by their names.
class NoteServer : public RouteHandlers {
 public:
  static constexpr std::size_t max_note_bytes = 1 << 20;

  explicit NoteServer(RequestAdmission::Options options = {.adapter_loading = true})
      : admission_(routes(), std::move(options)) {
    HttpHooks hooks{
        .handler = [this](Exchange& exchange) { return answer(exchange); },
        .admit = [this](const HttpHead& head) { return admission_.admit(head, match(head)); },
        .refuse = [](const Error& error, const HttpHead&) { return error_response(error); }};
    http_ = HttpServer::listen({.threads = 1}, std::move(hooks)).value();
    http_->start();
  }
  ~NoteServer() { http_->stop(); }

  std::uint16_t port() const { return http_->port(); }
  Received ask(std::string_view request) const { return server::ask(port(), request); }
  // A request without a body.
  Received ask(std::string_view method, std::string_view target,
               std::string_view headers = {}) const {
    return ask(cat(method, " ", target, " HTTP/1.1\r\nHost: here\r\n", headers, "\r\n"));
  }
  Received put(std::string_view target, std::string_view note,
               std::string_view headers = {}) const {
    return ask(cat("PUT ", target, " HTTP/1.1\r\nHost: here\r\n", headers,
                   "Content-Length: ", note.size(), "\r\n\r\n", note));
  }

 private:
  using Answer = boost::asio::awaitable<void>;

  static const RouteTable& routes() {
    static constexpr std::array rows = {
        Route::get("/notes", handler<&NoteServer::list_notes>),
        Route::put("/notes/{name}", handler<&NoteServer::put_note>)
            .for_operators()
            .with_streamed_body(max_note_bytes),
        Route::get("/notes/{name}", handler<&NoteServer::get_note>).with_exact_path(),
        Route::remove("/notes/{name}", handler<&NoteServer::remove_note>).for_operators(),
        Route::get("/words/{word}", handler<&NoteServer::get_word>),
        Route::post("/tags", handler<&NoteServer::take_tag>).with_body(16),
    };
    static constexpr RouteTable table(rows);
    return table;
  }
  static RouteTable::Match match(const HttpHead& head) {
    return routes().find(head.path, head.method);
  }

  Answer answer(Exchange& exchange) {
    const HttpRequest& request = exchange.request();
    const RouteTable::Match found = match(request);
    for (auto& [name, value] : admission_.page_headers(request, found))
      exchange.add_header(std::move(name), std::move(value));
    if (found.route != nullptr)
      co_await found.route->answer(*this, exchange);
    else
      co_await exchange.send(admission_.preflight(request, found));
  }

  Answer list_notes(Exchange& exchange) {
    std::string names;
    for (const auto& [name, note] : notes_) names += cat(name, "\n");
    co_await exchange.send(text_response("plain", std::move(names)));
  }
  Answer put_note(Exchange& exchange) {
    std::string note;
    while (true) {
      const Result<std::string_view> piece = co_await exchange.next_body_piece();
      if (!piece.ok()) {
        co_await exchange.send(error_response(piece.error()));
        co_return;
      }
      if (piece->empty()) break;
      note += *piece;
    }
    notes_[exchange.request().parameter] = std::move(note);
    co_await exchange.send(text_response("plain", "kept"));
  }
  Answer get_note(Exchange& exchange) {
    const auto found = notes_.find(exchange.request().parameter);
    if (found == notes_.end())
      co_await exchange.send(error_response({ErrorCode::not_found, "no such note"}));
    else
      co_await exchange.send(text_response("plain", found->second));
  }
  Answer remove_note(Exchange& exchange) {
    notes_.erase(exchange.request().parameter);
    co_await exchange.send(text_response("plain", "removed"));
  }
  // The word, or what the query has in its place.
  Answer get_word(Exchange& exchange) {
    const auto other = exchange.request().query.value("in place");
    if (!other.ok())
      co_await exchange.send(error_response(other.error()));
    else
      co_await exchange.send(text_response("plain", other->value_or(exchange.request().parameter)));
  }

  Answer take_tag(Exchange& exchange) {
    co_await exchange.send(text_response("plain", exchange.request().body));
  }

  RequestAdmission admission_;
  std::map<std::string, std::string> notes_;  // one thread has all connections
  std::unique_ptr<HttpServer> http_;
};

TEST(Routes, OfOnePathDifferByTheirMethods) {
  const NoteServer server;
  const std::string note(600'000, 'n');
  EXPECT_EQ(server.put("/notes/one", note).body, "kept");
  EXPECT_EQ(server.ask("GET", "/notes/one").body, note);
  Client client(server.port());
  ASSERT_TRUE(client.send("HEAD /notes/one HTTP/1.1\r\nHost: here\r\n\r\n"));
  EXPECT_EQ(client.receive(true).headers.at("content-length"), "600000");
  EXPECT_EQ(server.ask("GET", "/notes").body, "one\n");
  EXPECT_EQ(server.ask("DELETE", "/notes/one").body, "removed");
  EXPECT_EQ(server.ask("GET", "/notes/one").status, 404);
}

TEST(Routes, SayWhichMethodsTheirPathHas) {
  const NoteServer server;
  for (const auto& [target, allowed] : std::initializer_list<std::pair<const char*, const char*>>{
           {"/notes/x", "PUT, GET, HEAD, DELETE"}, {"/notes", "GET, HEAD"}}) {
    for (const char* const method : {"POST", "PATCH", "put"}) {
      const Received refused = server.ask(method, target);
      EXPECT_EQ(refused.status, 405) << method << target;
      EXPECT_EQ(refused.headers.at("allow"), allowed) << method << target;
      EXPECT_THAT(refused.error("message"), HasSubstr(allowed));
    }
  }
}

TEST(Routes, GiveTheRestOfThePathDecodedOnce) {
  const NoteServer server;
  const auto name_of = [&](std::string_view target) {
    EXPECT_EQ(server.put(target, "x").status, 200) << target;
    const std::string names = server.ask("GET", "/notes").body;
    EXPECT_EQ(server.ask("DELETE", target).status, 200) << target;
    return names;
  };
  EXPECT_EQ(name_of("/notes/a%2Fb"), "a/b\n");
  EXPECT_EQ(name_of("/notes/a/b%20c+d"), "a/b c+d\n");
  EXPECT_EQ(name_of("/notes/%252F%C3%A9"), "%2F\u00e9\n");
  EXPECT_EQ(name_of("/notes/a?b"), "a\n");
  // One spelling of the path, which is not tidied.
  EXPECT_EQ(name_of("/notes//a/"), "/a/\n");
  for (const char* const target : {"/notes/%FF", "/notes/a%00b", "/words/%C3"}) {
    const Received refused = server.ask("GET", target);
    EXPECT_EQ(refused.status, 400) << target;
    EXPECT_THAT(refused.error("message"), HasSubstr("no UTF-8, or holds NUL")) << target;
  }
  EXPECT_EQ(server.put("/notes/", "x").status, 405) << "the path of the list";
  for (const char* const target : {"//notes/a", "/%6Eotes/a", "/./notes/a"})
    EXPECT_EQ(server.put(target, "x").status, 404) << target;
  for (const char* const target : {"/notes/50%", "/notes/%zz", "/notes/a%2"}) {
    const Received refused = server.put(target, "x");
    EXPECT_EQ(refused.status, 400) << target;
    EXPECT_THAT(refused.error("message"), HasSubstr("request target")) << target;
  }
}

TEST(Routes, WithOtherSpellingsGiveTheTidyRest) {
  const NoteServer server;
  EXPECT_EQ(server.ask("GET", "//words//a%2F/b/").body, "a//b");
  EXPECT_EQ(server.ask("GET", "/words/50%").body, "50%");
  EXPECT_EQ(server.ask("GET", "/words/").status, 404);
}

TEST(Queries, AreReadByName) {
  const NoteServer server;
  const auto word = [&](std::string_view query) {
    const Received reply = server.ask("GET", cat("/words/none?", query));
    EXPECT_EQ(reply.status, 200) << query << reply.body;
    return reply.body;
  };
  EXPECT_EQ(word("in+place=1+2%2B3"), "1 2+3");
  EXPECT_EQ(word("a=b&&in%20place=%26%3D=&c"), "&==");
  EXPECT_EQ(word("in+place"), "");
  EXPECT_EQ(word("in+place=%E2%82%AC?"), "\u20ac?");
  EXPECT_EQ(word("place=in&In+place=x&=y"), "none");
  EXPECT_EQ(word(""), "none");
}

TEST(Queries, AreRefusedWhereTwoReadersDiffer) {
  const NoteServer server;
  const auto message = [&](std::string_view query) {
    const Received refused = server.ask("GET", cat("/words/none?", query));
    EXPECT_EQ(refused.status, 400) << query;
    return refused.error("message");
  };
  EXPECT_THAT(message("in+place=1&in%20place=1"), HasSubstr("two values"));
  for (const char* const query : {"in+place=%FF", "in+place=a%00b"})
    EXPECT_THAT(message(query), HasSubstr("no UTF-8, or holds NUL")) << query;
  for (const char* const query : {"%", "a=%4", "a=%4g&b", "%zz=1"})
    EXPECT_THAT(message(query), HasSubstr("request target")) << query;
}

TEST(Queries, ThatRoutesDoNotReadAreIgnored) {
  const TestServer server;
  EXPECT_EQ(server.ask(get("/version?a=b&a=%FF&c")).status, 200);
  const Received refused = server.ask(get("/version?a=%4"));
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.error("param"), "null");
  EXPECT_THAT(refused.error("message"), HasSubstr("request target"));
}

TEST(Queries, ThatAreRefusedGetTheAnswerOfTheirRoute) {
  const TestServer server({.keys = {"secret"}, .origins = {.allowed = {"https://app.example"}}});
  const std::string headers =
      "Origin: https://app.example\r\nX-Request-Id: mine\r\nX-Api-Key: secret\r\n";
  const Received refused = server.ask(post("/v1/messages?a=%4", "{}", headers));
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.headers.at("x-request-id"), "mine");
  EXPECT_EQ(refused.headers.at("access-control-allow-origin"), "https://app.example");
  EXPECT_EQ(*refused.json().if_object()->find("type")->if_string(), "error")
      << "as Anthropic's protocol has it";
  EXPECT_EQ(server.ask(get("/version?a=%4")).status, 401) << "who may not ask learns no more";
  EXPECT_EQ(server.ask(get("/nowhere?a=%4")).status, 404);
}

// However small their limit is.
TEST(Routes, SayWhetherTheyReadABody) {
  const NoteServer server;
  const auto post_tag = [&](std::string_view tag, std::string_view coding = {}) {
    return server.ask(cat("POST /tags HTTP/1.1\r\nHost: here\r\n", coding,
                          "Content-Length: ", tag.size(), "\r\n\r\n", tag));
  };
  EXPECT_EQ(post_tag("small").body, "small");
  EXPECT_EQ(post_tag("seventeen letters").status, 413);
  EXPECT_EQ(post_tag("small", "Content-Encoding: none-such\r\n").status, 415);
  EXPECT_EQ(server.ask("GET", "/notes", "Content-Encoding: none-such\r\n").status, 200);
}

TEST(Routes, LetBrowsersAskForTheMethodsThatPagesHave) {
  const std::string origin = "Origin: https://app.example\r\n";
  const NoteServer server(
      {.origins = {.allowed = {"https://app.example"}}, .adapter_loading = true});
  const auto methods = [&](std::string_view target) {
    const Received preflight = server.ask("OPTIONS", target, origin);
    EXPECT_EQ(preflight.status, 204) << target;
    return preflight.headers.at("access-control-allow-methods");
  };
  EXPECT_EQ(methods("/notes"), "GET, HEAD, OPTIONS");
  EXPECT_EQ(methods("/notes/x"), "GET, HEAD, OPTIONS") << "pages have no PUT and no DELETE";
  EXPECT_EQ(server.put("/notes/x", "x", origin).status, 403);
  EXPECT_EQ(server.ask("DELETE", "/notes/x", origin).status, 403);
  const Received whole = server.ask("GET", "/notes", origin);
  EXPECT_EQ(whole.headers.at("access-control-allow-origin"), "https://app.example");
  TestServer real({.adapter_loading = true, .origins = {.allowed = {"https://app.example"}}});
  const auto asked = [&](std::string_view target) {
    return real.ask(cat("OPTIONS ", target, " HTTP/1.1\r\nHost: here\r\n", origin, "\r\n"));
  };
  EXPECT_EQ(asked("/v1/completions").headers.at("access-control-allow-methods"), "POST, OPTIONS");
  EXPECT_EQ(asked("/ping").headers.at("access-control-allow-methods"), "GET, HEAD, POST, OPTIONS");
  const Received none = asked("/v1/load_lora_adapter");
  EXPECT_EQ(none.status, 405);
  EXPECT_EQ(none.headers.at("allow"), "POST");
}

TEST(Routes, SayWhoMayAsk) {
  const NoteServer closed(RequestAdmission::Options{});
  EXPECT_EQ(closed.ask("GET", "/notes").status, 200);
  const Received refused = closed.put("/notes/x", "x");
  EXPECT_EQ(refused.status, 403);
  EXPECT_EQ(refused.headers.at("connection"), "close") << "its body is not read";
  EXPECT_EQ(closed.ask("DELETE", "/notes/x").status, 403);
  const NoteServer guarded({.keys = ApiKeys({"secret"}), .adapter_loading = true});
  const std::string key = "Authorization: Bearer secret\r\n";
  for (const char* const target : {"/notes", "/notes/x"})
    EXPECT_EQ(guarded.ask("GET", target).status, 401) << target;
  EXPECT_EQ(guarded.put("/notes/x", "x").status, 401);
  EXPECT_EQ(guarded.put("/notes/x", "x", key).status, 200);
  EXPECT_EQ(guarded.ask("DELETE", "/notes/x", key).status, 200);
}

TEST(Routes, BoundTheirBodies) {
  const NoteServer server;
  const std::string_view headers = "Host: here\r\nExpect: 100-continue\r\n";
  const Received large =
      server.ask(cat("PUT /notes/x HTTP/1.1\r\n", headers,
                     "Content-Length: ", NoteServer::max_note_bytes + 1, "\r\n\r\n"));
  EXPECT_EQ(large.status, 413);
  const Received coded = server.put("/notes/x", "x", "Content-Encoding: gzip\r\n");
  EXPECT_EQ(coded.status, 415) << "a streamed body is read as it comes";
  EXPECT_EQ(coded.headers.at("accept-encoding"), "identity");
  EXPECT_EQ(server
                .ask(cat("DELETE /notes/x HTTP/1.1\r\nHost: here\r\nContent-Length: 5000\r\n\r\n",
                         std::string(5000, 'x')))
                .status,
            413);
}

}  // namespace
}  // namespace motley::server
