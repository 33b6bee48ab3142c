#include "cli/load/url_target.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <future>
#include <thread>
#include <tuple>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
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
#include "base/json.h"
#include "base/version.h"
#include "cli/load/event_stream.h"

namespace motley::cli {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

constexpr auto no_throw = asio::as_tuple(asio::use_awaitable);
constexpr auto patience = std::chrono::minutes(10);  // for the next bytes of an answer
constexpr std::size_t piece_bytes = 16 << 10;
constexpr std::size_t longest_answer = 16 << 20;

using Failure = boost::system::error_code;

Error wrong_url(std::string_view text, std::string fix) {
  return {ErrorCode::invalid_argument, cat("not a server's address: ", quote(text)), "--url",
          std::move(fix)};
}

// A connection to the server, kept from one request to the next.
struct Line {
  explicit Line(asio::io_context& context) : stream(context) {}

  beast::tcp_stream stream;
  beast::flat_buffer buffer;
  bool used = false;  // has carried an answer
};

struct Models {
  std::string base;
  std::vector<std::string> adapters;
};

Result<Models> read_models(std::string_view body, const std::optional<std::string>& base) {
  const Error strange(ErrorCode::bad_file, "its list of models is none", "GET /v1/models",
                      "check that the URL is that of an OpenAI-compatible server");
  const auto value = json::parse(body, "GET /v1/models");
  const json::Object* const object = value.ok() ? value->if_object() : nullptr;
  const json::Value* const data = object == nullptr ? nullptr : object->find("data");
  if (data == nullptr || data->if_array() == nullptr) return strange;
  Models models{.base = base.value_or("")};
  std::vector<std::pair<std::string, std::string>> with_parent;
  for (const json::Value& entry : *data->if_array()) {
    const json::Object* const model = entry.if_object();
    const json::Value* const id = model == nullptr ? nullptr : model->find("id");
    if (id == nullptr || id->if_string() == nullptr) return strange;
    const json::Value* const parent = model->find_set("parent");
    if (parent != nullptr && parent->if_string() != nullptr) {
      with_parent.emplace_back(*id->if_string(), *parent->if_string());
    } else if (models.base.empty()) {
      models.base = *id->if_string();
    }
  }
  if (models.base.empty()) return strange;
  for (auto& [id, parent] : with_parent) {
    if (parent == models.base) models.adapters.push_back(std::move(id));
  }
  return models;
}

}  // namespace

Result<ServerUrl> ServerUrl::parse(std::string_view text) {
  constexpr std::string_view scheme = "http://";
  if (text.starts_with("https://")) return wrong_url(text, "TLS is not spoken; use http://");
  if (!text.starts_with(scheme)) return wrong_url(text, "write http://HOST:PORT");
  std::string_view rest = text.substr(scheme.size());
  ServerUrl url;
  if (const std::size_t slash = rest.find('/'); slash != rest.npos) {
    std::string_view prefix = rest.substr(slash);
    while (prefix.ends_with('/')) prefix.remove_suffix(1);
    url.prefix = prefix;
    rest = rest.substr(0, slash);
  }
  // [::1]:8000
  const std::size_t bracket = rest.rfind(']');
  const std::size_t colon = rest.find(':', bracket == rest.npos ? 0 : bracket);
  if (colon != rest.npos) {
    const std::string_view port = rest.substr(colon + 1);
    std::uint16_t number = 0;
    const auto parsed = std::from_chars(port.data(), port.data() + port.size(), number);
    if (parsed.ec != std::errc() || parsed.ptr != port.data() + port.size())
      return wrong_url(text, "the port is a number up to 65535");
    url.port = port;
    rest = rest.substr(0, colon);
  }
  if (rest.starts_with('[') && rest.ends_with(']')) rest = rest.substr(1, rest.size() - 2);
  if (rest.empty()) return wrong_url(text, "write http://HOST:PORT");
  url.host = rest;
  return url;
}

// Everything below runs on one thread, but for what the target calls.
class UrlTarget::Client {
 public:
  explicit Client(const Options& options)
      : options_(options), work_(context_.get_executor()), thread_([this] { context_.run(); }) {}
  ~Client() {
    work_.reset();
    context_.stop();
    thread_.join();
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  Result<void> ask_for_models() {
    std::promise<Result<std::string>> answer;
    asio::co_spawn(
        context_, [&]() -> asio::awaitable<void> { answer.set_value(co_await get("/v1/models")); },
        asio::detached);
    MOTLEY_TRY(const std::string body, answer.get_future().get());
    MOTLEY_TRY(models_, read_models(body, options_.model));
    return {};
  }

  void send(PlannedRequest request, FlightObserver& observer) {
    asio::co_spawn(context_, complete(std::move(request), observer), asio::detached);
  }

  const Models& models() const { return models_; }
  std::int64_t vocabulary() const { return options_.vocabulary; }

 private:
  using Request = http::request<http::string_body>;

  Error broken(std::string_view doing, const Failure& failure) const {
    return {ErrorCode::io, cat("can't ", doing, ": ", failure.message()),
            cat("http://", options_.url.host, ":", options_.url.port),
            "check the address, and that the server runs"};
  }

  Request make_request(http::verb verb, std::string_view path) const {
    Request request(verb, cat(options_.url.prefix, path), 11);
    request.set(http::field::host, cat(options_.url.host, ":", options_.url.port));
    request.set(http::field::user_agent, cat("motley/", version()));
    if (!options_.key.empty())
      request.set(http::field::authorization, cat("Bearer ", options_.key));
    return request;
  }

  asio::awaitable<Result<std::unique_ptr<Line>>> connect() {
    auto line = std::make_unique<Line>(context_);
    line->stream.expires_after(patience);
    asio::ip::tcp::resolver resolver(context_);
    const auto [unknown, ends] =
        co_await resolver.async_resolve(options_.url.host, options_.url.port, no_throw);
    if (unknown) co_return broken("find the server", unknown);
    const auto [refused, end] = co_await line->stream.async_connect(ends, no_throw);
    if (refused) co_return broken("reach the server", refused);
    Failure ignored;
    std::ignore = line->stream.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
    co_return std::move(line);
  }

  using Parser = http::response_parser<http::buffer_body>;

  // Sends the request and reads the answer's head. An idle connection that the server has closed
  // meanwhile is replaced.
  asio::awaitable<Result<std::unique_ptr<Line>>> begin(const Request& request,
                                                       std::optional<Parser>& parser) {
    for (;;) {
      std::unique_ptr<Line> line;
      if (idle_.empty()) {
        auto connected = co_await connect();
        if (!connected.ok()) co_return std::move(connected).error();
        line = *std::move(connected);
      } else {
        line = std::move(idle_.back());
        idle_.pop_back();
      }
      line->stream.expires_after(patience);
      parser.emplace();
      parser->body_limit(boost::none);
      Failure failure;
      std::tie(failure, std::ignore) = co_await http::async_write(line->stream, request, no_throw);
      if (!failure)
        std::tie(failure, std::ignore) =
            co_await http::async_read_header(line->stream, line->buffer, *parser, no_throw);
      if (!failure) co_return std::move(line);
      if (!line->used) co_return broken("ask the server", failure);
    }
  }

  // Hands the answer's body to `take`, piece by piece; then the connection is idle again.
  template <class Take>
  asio::awaitable<Result<void>> read_body(std::unique_ptr<Line> line, Parser& parser, Take take) {
    std::array<char, piece_bytes> piece{};
    while (!parser.is_done()) {
      auto& body = parser.get().body();
      body.data = piece.data();
      body.size = piece.size();
      line->stream.expires_after(patience);
      auto [failure, bytes] =
          co_await http::async_read_some(line->stream, line->buffer, parser, no_throw);
      if (failure && failure != http::error::need_buffer)
        co_return broken("read the answer", failure);
      auto taken = take(std::string_view(piece.data(), piece.size() - body.size));
      if (!taken.ok()) co_return std::move(taken).error();
    }
    line->used = true;
    if (parser.keep_alive()) idle_.push_back(std::move(line));
    co_return Result<void>();
  }

  asio::awaitable<Result<std::string>> read_text(std::unique_ptr<Line> line, Parser& parser) {
    std::string text;
    auto read =
        co_await read_body(std::move(line), parser, [&](std::string_view piece) -> Result<void> {
          text += piece;
          if (text.size() <= longest_answer) return {};
          return Error(ErrorCode::bad_file, "its answer is too long", "", "check the URL");
        });
    if (!read.ok()) co_return std::move(read).error();
    if (parser.get().result_int() != 200)
      co_return Error(ErrorCode::unavailable,
                      cat("it answers ", parser.get().result_int(), ": ", error_text(text)),
                      cat("http://", options_.url.host, ":", options_.url.port),
                      "see the server's log");
    co_return text;
  }

  asio::awaitable<Result<std::string>> get(std::string path) {
    std::optional<Parser> parser;
    auto line = co_await begin(make_request(http::verb::get, path), parser);
    if (!line.ok()) co_return std::move(line).error();
    co_return co_await read_text(*std::move(line), *parser);
  }

  Request completion(const PlannedRequest& wanted) const {
    json::Array prompt;
    prompt.reserve(wanted.tokens.size());
    for (const std::int32_t token : wanted.tokens) prompt.emplace_back(token);
    json::Object usage;
    usage.add("include_usage", true);
    json::Object body;
    body.add("model", wanted.adapter ? models_.adapters[*wanted.adapter] : models_.base);
    body.add("prompt", std::move(prompt));
    body.add("max_tokens", wanted.max_tokens);
    body.add("temperature", 0);
    body.add("ignore_eos", true);
    body.add("stream", true);
    body.add("stream_options", std::move(usage));
    Request request = make_request(http::verb::post, "/v1/completions");
    request.set(http::field::content_type, "application/json");
    request.body() = json::write(std::move(body));
    request.prepare_payload();
    return request;
  }

  asio::awaitable<void> complete(PlannedRequest wanted, FlightObserver& observer) {
    EventStream events([&] { observer.token(); });
    const Result<void> read = co_await stream(completion(wanted), events);
    if (!read.ok()) {
      observer.ended(read.error());
    } else if (!events.done()) {
      observer.ended(Error(ErrorCode::io, "the stream ends without [DONE]",
                           cat("http://", options_.url.host, ":", options_.url.port),
                           "see the server's log"));
    } else {
      observer.ended({}, events.tokens());
    }
  }

  asio::awaitable<Result<void>> stream(Request request, EventStream& events) {
    std::optional<Parser> parser;
    auto line = co_await begin(request, parser);
    if (!line.ok()) co_return std::move(line).error();
    if (parser->get().result_int() != 200) {
      auto text = co_await read_text(*std::move(line), *parser);
      co_return std::move(text).error();
    }
    co_return co_await read_body(*std::move(line), *parser,
                                 [&](std::string_view piece) { return events.read(piece); });
  }

  Options options_;
  Models models_;
  asio::io_context context_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::vector<std::unique_ptr<Line>> idle_;
  std::thread thread_;  // last: it uses all of the above
};

UrlTarget::UrlTarget(std::unique_ptr<Client> client) : client_(std::move(client)) {}
UrlTarget::~UrlTarget() = default;

Result<std::unique_ptr<UrlTarget>> UrlTarget::open(const Options& options) {
  auto client = std::make_unique<Client>(options);
  MOTLEY_TRY_VOID(client->ask_for_models());
  return std::unique_ptr<UrlTarget>(new UrlTarget(std::move(client)));
}

const std::string& UrlTarget::base() const { return client_->models().base; }
std::size_t UrlTarget::adapters() const { return client_->models().adapters.size(); }
std::int64_t UrlTarget::vocabulary() const { return client_->vocabulary(); }

void UrlTarget::send(PlannedRequest request, FlightObserver& observer) {
  client_->send(std::move(request), observer);
}

}  // namespace motley::cli
