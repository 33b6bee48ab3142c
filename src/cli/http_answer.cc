#include "cli/http_answer.h"

#include <charconv>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "base/cat.h"

namespace motley::cli {
namespace {

namespace http = boost::beast::http;
using Failure = boost::system::error_code;

std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

}  // namespace

struct HttpAnswer::Parser {
  Parser() {
    parser.eager(true);
    parser.body_limit(boost::none);
  }

  http::response_parser<http::string_body> parser;
};

HttpAnswer::HttpAnswer() : parser_(std::make_unique<Parser>()) {}
HttpAnswer::HttpAnswer(HttpAnswer&& other) noexcept = default;
HttpAnswer& HttpAnswer::operator=(HttpAnswer&& other) noexcept = default;
HttpAnswer::~HttpAnswer() = default;

Result<void> HttpAnswer::take(std::string_view bytes) {
  pending_ += bytes;
  while (!pending_.empty() && !complete()) {
    Failure failure;
    const std::size_t used = parser_->parser.put(boost::asio::buffer(pending_), failure);
    pending_.erase(0, used);
    if (failure == http::error::need_more) return {};
    if (failure)
      return Error(ErrorCode::io, cat("no answer of HTTP: ", failure.message()), "",
                   "check that the URL is motley's");
    // What follows a first "go on" is the answer.
    if (complete() && status() == 100) parser_ = std::make_unique<Parser>();
  }
  return {};
}

Result<void> HttpAnswer::end() {
  Failure failure;
  if (!complete()) parser_->parser.put_eof(failure);
  if (failure || !complete())
    return Error(ErrorCode::io, "the server went away in the midst of its answer", "",
                 "see what it says on standard error");
  return {};
}

bool HttpAnswer::complete() const { return parser_->parser.is_done(); }

int HttpAnswer::status() const {
  return parser_->parser.is_header_done() ? static_cast<int>(parser_->parser.get().result_int())
                                          : 0;
}

std::string HttpAnswer::take_body() { return std::exchange(parser_->parser.get().body(), {}); }

std::optional<std::string> EventReader::next() {
  while (true) {
    const std::size_t end = pending_.find("\n\n");
    if (end == std::string::npos) return std::nullopt;
    std::string event = pending_.substr(0, end);
    pending_.erase(0, end + 2);
    // Comments, which keep connections alive, are no data.
    if (event.starts_with("data: ")) return event.substr(6);
  }
}

std::optional<double> metric(std::string_view page, std::string_view name) {
  const std::string begin = cat("\n", name, " ");
  const std::size_t at = page.find(begin);
  if (at == std::string_view::npos) return std::nullopt;
  return number(page.substr(at + begin.size()));
}

std::string_view metric_label(std::string_view page, std::string_view name,
                              std::string_view label) {
  const std::string begin = cat("\n", name, "{");
  const std::size_t at = page.find(begin);
  if (at == std::string_view::npos) return {};
  std::string_view sample = page.substr(at + begin.size());
  sample = sample.substr(0, sample.find('}'));
  const std::string key = cat(label, "=\"");
  const std::size_t found = sample.find(key);
  if (found == std::string_view::npos) return {};
  sample.remove_prefix(found + key.size());
  return sample.substr(0, sample.find('"'));
}

}  // namespace motley::cli
