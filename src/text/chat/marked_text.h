#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

// A rendered conversation, with marks of the bytes that are untrusted, that is, not the template's
// own.
namespace motley::text {

// Bytes [begin, end) of a text.
struct Span {
  std::size_t begin = 0;
  std::size_t end = 0;

  bool operator==(const Span&) const = default;
};

// UTF-8, and the spans of it that come from messages, tools, documents or arguments: there, what
// reads like a special token is plain text. Spans are not empty, ascend and do not touch.
struct MarkedText {
  std::string text;
  std::vector<Span> untrusted;

  bool operator==(const MarkedText&) const = default;

  // Appends trusted or untrusted bytes.
  void append(std::string_view bytes, bool is_untrusted);

  // Appends another text with its marks.
  void append(const MarkedText& other);

  // Appends bytes [begin, end) of another text, which is not this one, with their marks.
  void append_part(const MarkedText& other, std::size_t begin, std::size_t end);

  // The number of spans that bytes [begin, end) have a part of.
  std::size_t spans_in(std::size_t begin, std::size_t end) const;

  // Whether any byte of [begin, end) is untrusted.
  bool any_untrusted(std::size_t begin, std::size_t end) const;

  // Bytes [begin, end) with their marks.
  MarkedText part(std::size_t begin, std::size_t end) const;
};

}  // namespace motley::text
