// Any bytes as the head of a request, and as the query of its target: they are refused with a
// message of one line, or mean the same wherever they are cut and however they are spelled.

#include "server/http/messages/request_head.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/cat.h"
#include "base/check.h"
#include "base/utf8.h"
#include "server/http/wire/head_scanner.h"
#include "server/http/wire/percent_encoding.h"

namespace server = motley::server;

namespace {

void check(const motley::Error& error) {
  const std::string message = error.message();
  MOTLEY_CHECK(!message.empty() && message == motley::printable(message), "one printable line");
}

std::string percent_encoded(std::string_view text) {
  constexpr std::string_view hex = "0123456789abcdef";
  std::string coded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    coded += {'%', hex[byte >> 4], hex[byte & 15]};
  }
  return coded;
}

void read_query(const server::Query& query) {
  const auto value = query.value("version");
  if (!value.ok()) return check(value.error());
  if (!*value) return;
  MOTLEY_CHECK(motley::utf8::valid(**value), "a value is text");
  const auto again = server::Query(motley::cat("a&version=", percent_encoded(**value)));
  MOTLEY_CHECK(again.well_formed() && again.value("version").value() == *value,
               "one value, any spelling");
}

void read_head(std::string_view bytes) {
  server::HeadScanner whole;
  const auto state = whole.scan(bytes);
  server::HeadScanner scanner;
  auto in_parts = scanner.scan(bytes.substr(0, bytes.size() / 2));
  if (in_parts == server::HeadScanner::State::incomplete) in_parts = scanner.scan(bytes);
  MOTLEY_CHECK(in_parts == state, "the same wherever it is cut");
  if (state != server::HeadScanner::State::complete) return;
  const auto head = server::parse_head(bytes.substr(0, whole.bytes()));
  if (!head.ok()) return check(head.error());
  MOTLEY_CHECK(head->head.path.find('?') == std::string::npos, "the query is no part of the path");
  MOTLEY_CHECK(!head->chunked || head->content_length == 0, "one end of the body");
  read_query(head->head.query);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  read_head(bytes);
  read_query(server::Query(bytes));
  MOTLEY_CHECK(server::percent_decoded(percent_encoded(bytes)).text == bytes, "decoded once");
  return 0;
}
