// The first line is a pattern, the rest a text. What compiles finds matches that go forward and lie
// on characters' borders, the same with and without its table; what is refused is refused with a
// message of one line.

#include "text/regex/regex.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/cat.h"
#include "base/check.h"
#include "base/utf8.h"

namespace {

using motley::text::Regex;
using motley::text::Span;

constexpr std::size_t max_matches = 4;

void check_message(const motley::Error& error) {
  const std::string message = error.message();
  MOTLEY_CHECK(!message.empty() && message == motley::printable(message), "one printable line");
}

bool is_border(std::string_view text, std::size_t at) {
  return at == text.size() || (static_cast<unsigned char>(text[at]) & 0xC0) != 0x80;
}

void check_match(std::string_view text, std::size_t from, Span match) {
  MOTLEY_CHECK(from <= match.begin && match.begin <= match.end && match.end <= text.size(),
               "a match that lies in what was searched");
  MOTLEY_CHECK(is_border(text, match.begin) && is_border(text, match.end),
               "a match between characters");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t line = input.find('\n');
  const std::string_view pattern = input.substr(0, line);
  const auto regex = Regex::compile(pattern, "input");
  const auto slow = Regex::compile(pattern, "input", Regex::Engine::backtracker);
  MOTLEY_CHECK(regex.ok() == slow.ok(), "both engines take the same patterns");
  if (!regex.ok()) {
    check_message(regex.error());
    return 0;
  }
  const std::string text =
      line == std::string_view::npos ? "" : motley::utf8::repaired(input.substr(line + 1));
  std::size_t from = 0;
  for (std::size_t matches = 0; matches < max_matches && from <= text.size(); ++matches) {
    const auto match = regex->find(text, from);
    const auto other = slow->find(text, from);
    if (!match.ok() || !other.ok()) {
      check_message(match.ok() ? other.error() : match.error());
      break;
    }
    MOTLEY_CHECK(*match == *other, "both engines find the same");
    if (!match->has_value()) break;
    check_match(text, from, **match);
    from = (*match)->end;
    if ((*match)->begin != (*match)->end) continue;
    do ++from;
    while (from < text.size() && !is_border(text, from));
  }
  return 0;
}
