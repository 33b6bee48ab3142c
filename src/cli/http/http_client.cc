#include "cli/http/http_client.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <tuple>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

#include "base/cat.h"
#include "base/json/json.h"
#include "base/version.h"

namespace motley::cli {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

constexpr auto no_throw = asio::as_tuple(asio::use_awaitable);
constexpr auto patience = std::chrono::minutes(10);  // for the next bytes of an answer
constexpr std::size_t piece_bytes = 16 << 10;
constexpr std::size_t longest_page = 16 << 20;
constexpr std::size_t shown_bytes = 200;

using Failure = boost::system::error_code;

}  // namespace

// A connection to the server.
struct HttpClient::Line {
  explicit Line(asio::io_context& context) : stream(context) {}

  beast::tcp_stream stream;
  beast::flat_buffer buffer;
  bool used = false;  // has carried an answer
};

// A request and its answer.
struct HttpClient::Exchange {
  Exchange(const HttpClient& client, http::verb verb, std::string_view path)
      : request(verb, cat(client.url_.prefix, path), 11) {
    request.set(http::field::host, cat(client.url_.host, ":", client.url_.port));
    request.set(http::field::user_agent, cat("motley/", version()));
    if (!client.key_.empty()) request.set(http::field::authorization, cat("Bearer ", client.key_));
  }

  http::request<http::string_body> request;
  std::unique_ptr<Line> line;
  std::optional<http::response_parser<http::buffer_body>> parser;
};

HttpClient::HttpClient(asio::io_context& context, ServerUrl url, std::string key)
    : context_(context), url_(std::move(url)), key_(std::move(key)) {}
HttpClient::~HttpClient() = default;

Error HttpClient::broken(std::string_view doing, std::string_view why) const {
  return {ErrorCode::io, cat("can't ", doing, ": ", why), url_.shown(),
          "check the address, and that the server runs"};
}

asio::awaitable<Result<std::unique_ptr<HttpClient::Line>>> HttpClient::connect() {
  auto line = std::make_unique<Line>(context_);
  line->stream.expires_after(patience);
  asio::ip::tcp::resolver resolver(context_);
  const auto [unknown, ends] = co_await resolver.async_resolve(url_.host, url_.port, no_throw);
  if (unknown) co_return broken("find the server", unknown.message());
  const auto [refused, end] = co_await line->stream.async_connect(ends, no_throw);
  if (refused) co_return broken("reach the server", refused.message());
  Failure ignored;
  std::ignore = line->stream.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
  co_return std::move(line);
}

// Sends the request and reads the answer's header. An idle connection that the server has closed is
// replaced.
asio::awaitable<Result<void>> HttpClient::begin(Exchange& exchange) {
  for (;;) {
    if (idle_.empty()) {
      auto connected = co_await connect();
      if (!connected.ok()) co_return std::move(connected).error();
      exchange.line = *std::move(connected);
    } else {
      exchange.line = std::move(idle_.back());
      idle_.pop_back();
    }
    Line& line = *exchange.line;
    line.stream.expires_after(patience);
    exchange.parser.emplace();
    exchange.parser->body_limit(boost::none);
    Failure failure;
    std::tie(failure, std::ignore) =
        co_await http::async_write(line.stream, exchange.request, no_throw);
    if (!failure)
      std::tie(failure, std::ignore) =
          co_await http::async_read_header(line.stream, line.buffer, *exchange.parser, no_throw);
    if (!failure) co_return Result<void>();
    if (!line.used) co_return broken("ask the server", failure.message());
  }
}

// After that the connection is idle again.
asio::awaitable<Result<void>> HttpClient::read_body(Exchange& exchange, const Take& take) {
  std::array<char, piece_bytes> piece{};
  Line& line = *exchange.line;
  auto& parser = *exchange.parser;
  while (!parser.is_done()) {
    auto& body = parser.get().body();
    body.data = piece.data();
    body.size = piece.size();
    line.stream.expires_after(patience);
    auto [failure, bytes] =
        co_await http::async_read_some(line.stream, line.buffer, parser, no_throw);
    if (failure && failure != http::error::need_buffer)
      co_return broken("read the answer", failure.message());
    auto taken = take(std::string_view(piece.data(), piece.size() - body.size));
    if (!taken.ok()) co_return std::move(taken).error();
  }
  line.used = true;
  if (parser.keep_alive()) idle_.push_back(std::move(exchange.line));
  co_return Result<void>();
}

asio::awaitable<Result<void>> HttpClient::answer(Exchange& exchange, const Take& take) {
  auto begun = co_await begin(exchange);
  if (!begun.ok()) co_return std::move(begun).error();
  const unsigned status = exchange.parser->get().result_int();
  if (status == 200) co_return co_await read_body(exchange, take);
  std::string text;
  const Take keep = [&](std::string_view piece) -> Result<void> {
    text += piece.substr(0, longest_page - std::min(text.size(), longest_page));
    return {};
  };
  auto read = co_await read_body(exchange, keep);
  if (!read.ok()) co_return std::move(read).error();
  co_return Error(ErrorCode::unavailable, cat("it answers ", status, ": ", error_text(text)),
                  url_.shown(), "see the server's log");
}

asio::awaitable<Result<std::string>> HttpClient::get(std::string path) {
  Exchange exchange(*this, http::verb::get, path);
  std::string page;
  const Take take = [&](std::string_view piece) -> Result<void> {
    page += piece;
    if (page.size() <= longest_page) return {};
    return Error(ErrorCode::bad_file, "its answer is too long", url_.shown(), "check the URL");
  };
  auto read = co_await answer(exchange, take);
  if (!read.ok()) co_return std::move(read).error();
  co_return page;
}

asio::awaitable<Result<void>> HttpClient::post(std::string path, std::string body, Take take) {
  Exchange exchange(*this, http::verb::post, path);
  exchange.request.set(http::field::content_type, "application/json");
  exchange.request.body() = std::move(body);
  exchange.request.prepare_payload();
  co_return co_await answer(exchange, take);
}

std::string error_text(std::string_view body) {
  const auto value = json::parse(body, "an answer");
  const json::Object* const object = value.ok() ? value->if_object() : nullptr;
  const json::Value* const error = object == nullptr ? nullptr : object->find("error");
  const json::Object* const fields = error == nullptr ? nullptr : error->if_object();
  const json::Value* const message = fields == nullptr ? nullptr : fields->find("message");
  if (message != nullptr && message->if_string() != nullptr) return *message->if_string();
  return quote(body.substr(0, shown_bytes));
}

}  // namespace motley::cli
