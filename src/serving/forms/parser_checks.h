#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "serving/forms/output_parser.h"

// Helpers for tests.
namespace motley::serving {

// A description of all parts, in order.
inline std::string described(const ParsedOutput& output) {
  std::string text;
  output.for_each(
      [&](OutputKind kind, std::string_view part) {
        text += cat(kind == OutputKind::content ? "content: " : "reasoning: ", part, "\n");
      },
      [&](const CallPiece& call) {
        text += cat("call: ", call.name, " ", call.arguments, call.id.empty() ? "" : " id ",
                    call.id, "\n");
      });
  return text;
}

// The parser's result for a text that arrives in up to three pieces.
inline ParsedOutput parse_in_pieces(OutputParser& parser, std::string_view text, std::size_t first,
                                    std::size_t second) {
  ParsedOutput all = parser.push(text.substr(0, first));
  all.append(parser.push(text.substr(first, second - first)));
  all.append(parser.push(text.substr(second)));
  all.append(parser.finish());
  return all;
}

inline ParsedOutput parse_whole(OutputParser& parser, std::string_view text) {
  return parse_in_pieces(parser, text, text.size(), text.size());
}

inline ParsedOutput parse_bytes(OutputParser& parser, std::string_view text) {
  ParsedOutput all;
  for (const char& byte : text) all.append(parser.push({&byte, 1}));
  all.append(parser.finish());
  return all;
}

inline void expect_same(const ParsedOutput& cut, const ParsedOutput& whole, std::string_view how) {
  const bool same = cut.reasoning == whole.reasoning && cut.content == whole.content &&
                    cut.calls == whole.calls && cut.order == whole.order;
  if (!same) ADD_FAILURE() << how << "\n" << described(cut) << "is not\n" << described(whole);
}

// Checks that the result is the same for every division into three pieces.
inline ParsedOutput parse_every_cut(const std::function<std::unique_ptr<OutputParser>()>& make,
                                    std::string_view text) {
  const ParsedOutput whole = parse_whole(*make(), text);
  for (std::size_t first = 0; first <= text.size(); ++first) {
    for (std::size_t second = first; second <= text.size(); ++second) {
      expect_same(parse_in_pieces(*make(), text, first, second), whole,
                  cat(text, "\ncut at ", first, " and ", second));
      if (::testing::Test::HasFailure()) return whole;
    }
  }
  expect_same(parse_bytes(*make(), text), whole, cat(text, "\nbyte by byte"));
  return whole;
}

}  // namespace motley::serving
