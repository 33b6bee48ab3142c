#include "server/http/messages/request_head.h"

#include <algorithm>
#include <optional>

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>

#include "base/cat.h"
#include "base/system/random_id.h"

namespace motley::server {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;

using Parser = http::request_parser<http::empty_body>;

std::string_view view(beast::string_view text) { return {text.data(), text.size()}; }

bool is_plain_number(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

// The values of all lines of a list.
std::string joined(const Parser& parser, beast::string_view name) {
  std::string list;
  const auto lines = parser.get().equal_range(name);
  for (auto line = lines.first; line != lines.second; ++line)
    list += cat(list.empty() ? "" : ",", view(line->value()));
  return list;
}

std::optional<Error> check_framing(const Parser& parser) {
  const auto& message = parser.get();
  const auto lengths = message.count(http::field::content_length);
  const auto encodings = message.count(http::field::transfer_encoding);
  if (encodings > 0) {
    if (message.version() == 10) return malformed_request("Transfer-Encoding in HTTP/1.0");
    if (lengths > 0) return malformed_request("both Transfer-Encoding and Content-Length");
    if (encodings > 1) return malformed_request("more than one Transfer-Encoding");
    if (!parser.chunked())
      return malformed_request("a Transfer-Encoding that does not end with chunked");
    if (!beast::iequals(message[http::field::transfer_encoding], "chunked"))
      return Error(ErrorCode::not_implemented, "a Transfer-Encoding other than chunked", "",
                   "send the body as it is");
  }
  if (lengths > 1) return malformed_request("more than one Content-Length");
  if (lengths == 1 && !is_plain_number(view(message[http::field::content_length])))
    return malformed_request("a Content-Length that is no plain number");
  return std::nullopt;
}

}  // namespace

Error malformed_request(std::string_view what) {
  return {ErrorCode::invalid_argument, cat("not a request that HTTP/1.1 allows: ", what), "",
          "send a well-formed request"};
}

Result<RequestHead> parse_head(std::string_view bytes) {
  Parser parser;
  parser.header_limit(static_cast<std::uint32_t>(bytes.size()));
  parser.body_limit(boost::none);  // routes have their own limits
  boost::system::error_code failure;
  parser.put(boost::asio::buffer(bytes.data(), bytes.size()), failure);
  if (failure) return malformed_request(failure.message());
  if (!parser.is_header_done()) return malformed_request("a head without its end");

  const auto& message = parser.get();
  if (message.version() != 10 && message.version() != 11)
    return malformed_request("another version");
  if (message.version() == 11 && message.count(http::field::host) != 1)
    return malformed_request("exactly one Host is needed");
  if (auto wrong = check_framing(parser)) return *std::move(wrong);

  RequestHead parsed;
  HttpHead& head = parsed.head;
  head.method = std::string(view(message.method_string()));
  const std::string_view target = view(message.target());
  const std::size_t path_bytes = std::min(target.find('?'), target.size());
  head.path = std::string(target.substr(0, path_bytes));
  head.query = Query(target.substr(std::min(path_bytes + 1, target.size())));
  head.authorization = std::string(view(message[http::field::authorization]));
  head.api_key = std::string(view(message["X-Api-Key"]));
  head.content_encoding = std::string(view(message[http::field::content_encoding]));
  head.content_type = std::string(view(message[http::field::content_type]));
  if (const auto length = parser.content_length()) head.content_length = *length;
  head.origin = std::string(view(message[http::field::origin]));
  head.host = std::string(view(message[http::field::host]));
  parsed.forwarded = {.forwarded_for = joined(parser, "X-Forwarded-For"),
                      .forwarded_host = joined(parser, "X-Forwarded-Host")};
  const std::string_view id = view(message["X-Request-Id"]);
  head.id = is_request_id(id) ? std::string(id) : random_id();
  parsed.http_1_0 = message.version() == 10;
  parsed.keep_alive = parser.keep_alive();
  parsed.expects_continue =
      !parsed.http_1_0 && beast::iequals(message[http::field::expect], "100-continue");
  parsed.chunked = parser.chunked();
  if (const auto length = parser.content_length()) parsed.content_length = *length;
  return parsed;
}

}  // namespace motley::server
