#include "text/chat/marked_text.h"

#include <algorithm>

namespace motley::text {
namespace {

void append_span(std::vector<Span>& spans, Span span) {
  if (span.begin == span.end) return;
  if (!spans.empty() && spans.back().end == span.begin)
    spans.back().end = span.end;
  else
    spans.push_back(span);
}

// The first span that ends after a byte.
std::vector<Span>::const_iterator first_beyond(const std::vector<Span>& spans, std::size_t at) {
  return std::ranges::upper_bound(spans, at, {}, &Span::end);
}

}  // namespace

void MarkedText::append(std::string_view bytes, bool is_untrusted) {
  if (is_untrusted)
    append_span(untrusted, {.begin = text.size(), .end = text.size() + bytes.size()});
  text.append(bytes);
}

void MarkedText::append(const MarkedText& other) {
  const std::size_t offset = text.size();
  const std::size_t spans = other.untrusted.size();  // `other` may be *this
  for (std::size_t i = 0; i < spans; ++i) {
    const Span span = other.untrusted[i];
    append_span(untrusted, {.begin = span.begin + offset, .end = span.end + offset});
  }
  text.append(other.text);
}

void MarkedText::append_part(const MarkedText& other, std::size_t begin, std::size_t end) {
  const std::size_t offset = text.size();
  for (auto span = first_beyond(other.untrusted, begin);
       span != other.untrusted.end() && span->begin < end; ++span)
    append_span(untrusted, {.begin = std::max(span->begin, begin) - begin + offset,
                            .end = std::min(span->end, end) - begin + offset});
  text.append(other.text, begin, end - begin);
}

std::size_t MarkedText::spans_in(std::size_t begin, std::size_t end) const {
  const auto first = first_beyond(untrusted, begin);
  const auto last = std::ranges::lower_bound(first, untrusted.end(), end, {}, &Span::begin);
  return static_cast<std::size_t>(last - first);
}

bool MarkedText::any_untrusted(std::size_t begin, std::size_t end) const {
  const auto span = first_beyond(untrusted, begin);
  return begin < end && span != untrusted.end() && span->begin < end;
}

MarkedText MarkedText::part(std::size_t begin, std::size_t end) const {
  MarkedText result;
  result.append_part(*this, begin, end);
  return result;
}

}  // namespace motley::text
