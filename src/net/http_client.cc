#include "net/http_client.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <tuple>

#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>

#include "base/cat.h"
#include "base/version.h"
#include "net/byte_stream.h"
#include "net/connect.h"

namespace motley::net {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

using Failure = ByteStream::Failure;
using Parser = http::response_parser<http::buffer_body>;

constexpr auto patience = std::chrono::minutes(10);  // for the next bytes of an answer
constexpr std::size_t piece_bytes = 16 << 10;
constexpr std::size_t max_answer_bytes = 16 << 20;

// Such an answer comes before the one that counts.
bool is_interim(const Parser& parser) { return parser.get().result_int() / 100 == 1; }

// Whether to send it twice is to send it once.
bool is_idempotent(std::string_view method) {
  constexpr std::array<std::string_view, 6> methods = {"GET",    "HEAD",    "PUT",
                                                       "DELETE", "OPTIONS", "TRACE"};
  return std::ranges::find(methods, method) != methods.end();
}

// The server has closed the connection.
bool is_end(const Failure& failure) {
  return failure == asio::error::eof || failure == asio::error::connection_reset ||
         failure == asio::error::broken_pipe;
}

std::string head_of(const HttpClient::Request& request, const ServerUrl& url) {
  std::string head =
      cat(request.method, " ", url.prefix, request.path, " HTTP/1.1\r\nHost: ", url.authority(),
          "\r\nUser-Agent: motley/", version(), "\r\n");
  for (const auto& [name, value] : request.headers) head += cat(name, ": ", value, "\r\n");
  const bool asks_only = request.method == "GET" || request.method == "HEAD";
  if (!asks_only || !request.body.empty())
    head += cat("Content-Length: ", request.body.size(), "\r\n");
  return head + "\r\n";
}

}  // namespace

// A connection to the server. An operation that takes longer than `patience` fails.
class HttpClient::Line : public std::enable_shared_from_this<Line> {
 public:
  explicit Line(ByteStream stream) : stream_(std::move(stream)), timer_(stream_.executor()) {}

  asio::awaitable<Failure> write(std::string_view head, std::string_view body) {
    answer_began_ = false;
    start_timer();
    const auto always = [] { return true; };
    const auto [failure, bytes] = co_await stream_.write({head, body, ""}, always);
    co_return end_of_wait(failure);
  }

  // `only`: the answer has no body, whatever its header says.
  asio::awaitable<Failure> read_head(std::optional<Parser>& parser, bool only) {
    Failure failure;
    do {
      parser.emplace();
      parser->skip(only);
      parser->body_limit(boost::none);
      while (!failure && !parser->is_header_done()) failure = co_await step(*parser);
    } while (!failure && is_interim(*parser));
    co_return failure;
  }

  // Lets the parser go on by one step, over what has come or over more.
  asio::awaitable<Failure> step(Parser& parser) {
    Failure failure = http::error::need_more;
    if (buffer_.size() > 0) buffer_.consume(parser.put(buffer_.data(), failure));
    if (failure != http::error::need_more) co_return failure;
    start_timer();
    const auto [end, bytes] = co_await stream_.read_some(buffer_.prepare(piece_bytes));
    buffer_.commit(bytes);
    answer_began_ |= bytes > 0;
    if (end != asio::error::eof || !parser.got_some()) co_return end_of_wait(end);
    timer_.cancel();
    parser.put_eof(failure);
    co_return failure;
  }

  bool was_used() const { return used_; }
  bool answer_began() const { return answer_began_; }
  // Whether the server has closed it, or sent what was not asked for.
  bool is_stale() { return stream_.has_input(); }
  // An answer has been read. Returns whether nothing else has come with it.
  bool end_answer() {
    used_ = true;
    return buffer_.size() == 0;
  }

 private:
  void start_timer() {
    timer_.expires_after(patience);
    timer_.async_wait([weak = weak_from_this()](const Failure& stopped) {
      const auto self = weak.lock();
      if (stopped || self == nullptr) return;
      self->late_ = true;
      self->stream_.cancel();
    });
  }
  Failure end_of_wait(const Failure& failure) {
    timer_.cancel();
    return late_ ? asio::error::timed_out : failure;
  }

  ByteStream stream_;
  asio::steady_timer timer_;
  beast::flat_buffer buffer_;
  bool used_ = false;          // has carried an answer
  bool answer_began_ = false;  // to the last request
  bool late_ = false;          // an operation has taken too long
};

// A request and its answer.
struct HttpClient::Exchange {
  std::string method;
  std::string head;
  std::string body;
  std::shared_ptr<Line> line = nullptr;
  std::optional<Parser> parser = {};
};

HttpClient::HttpClient(ServerUrl url) : url_(std::move(url)) {}
HttpClient::~HttpClient() = default;

asio::awaitable<Result<void>> HttpClient::connect(Exchange& exchange) {
  while (!idle_.empty()) {
    exchange.line = std::move(idle_.back());
    idle_.pop_back();
    if (!exchange.line->is_stale()) co_return Result<void>();
  }
  Result<ByteStream> stream = co_await net::connect(url_);
  if (!stream.ok()) co_return std::move(stream).error();
  exchange.line = std::make_shared<Line>(*std::move(stream));
  co_return Result<void>();
}

// Sends the request and reads the answer's header. An idle connection that the server closes in
// this moment is replaced, if the server can't have acted on the request or may do so twice.
asio::awaitable<Result<void>> HttpClient::begin(Exchange& exchange) {
  for (;;) {
    Result<void> connected = co_await connect(exchange);
    if (!connected.ok()) co_return connected;
    Line& line = *exchange.line;
    const Failure unsent = co_await line.write(exchange.head, exchange.body);
    Failure failure = unsent;
    if (!failure) failure = co_await line.read_head(exchange.parser, exchange.method == "HEAD");
    if (!failure) co_return Result<void>();
    const bool closed = line.was_used() && is_end(failure) && !line.answer_began();
    if (!closed || !(unsent || is_idempotent(exchange.method)))
      co_return url_.failed("ask the server", failure.message());
  }
}

// After that the connection is idle again, unless some of the body is left.
asio::awaitable<Result<void>> HttpClient::read_body(Exchange& exchange, Sink sink) {
  std::array<char, piece_bytes> piece{};
  Parser& parser = *exchange.parser;
  while (!parser.is_done()) {
    auto& body = parser.get().body();
    body.data = piece.data();
    body.size = piece.size();
    const Failure failure = co_await exchange.line->step(parser);
    if (failure && failure != http::error::need_buffer)
      co_return url_.failed("read the answer", failure.message());
    const std::size_t bytes = piece.size() - body.size;
    if (bytes == 0) continue;
    Result<bool> more = sink(std::string_view(piece.data(), bytes));
    if (!more.ok()) co_return std::move(more).error();
    if (!*more) co_return Result<void>();
  }
  if (exchange.line->end_answer() && parser.keep_alive()) idle_.push_back(std::move(exchange.line));
  co_return Result<void>();
}

asio::awaitable<Result<HttpClient::Answer>> HttpClient::send(Request request, Take take) {
  Exchange exchange{
      .method = request.method, .head = head_of(request, url_), .body = std::move(request.body)};
  Result<void> done = co_await begin(exchange);
  if (!done.ok()) co_return std::move(done).error();
  Answer answer{.status = static_cast<int>(exchange.parser->get().result_int())};
  const bool well = answer.status == 200;
  const auto sink = [&](std::string_view piece) -> Result<bool> {
    if (take && well) {
      MOTLEY_TRY_VOID(take(piece));
      return true;
    }
    const std::size_t space = max_answer_bytes - answer.body.size();
    if (well && piece.size() > space)
      return Error(ErrorCode::bad_file, "its answer is too long", url_.shown(), "check the URL");
    answer.body += piece.substr(0, space);
    return piece.size() <= space;
  };
  done = co_await read_body(exchange, sink);
  if (!done.ok()) co_return std::move(done).error();
  co_return answer;
}

}  // namespace motley::net
