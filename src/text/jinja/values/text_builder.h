#pragma once

#include <cstddef>
#include <string_view>

#include "base/result.h"
#include "text/chat/marked_text.h"
#include "text/jinja/runtime.h"
#include "text/jinja/values/value.h"

namespace motley::text::jinja {

// Enough bytes of a text that is being converted to append them.
inline constexpr std::size_t piece_bytes = 1024;

// Builds a text within the limits of a rendering: memory is counted before it is allocated, and
// each 64 bytes that are copied are a step.
class TextBuilder {
 public:
  explicit TextBuilder(Runtime& runtime) : runtime_(runtime), held_(runtime) {}

  Result<void> append(std::string_view bytes, bool untrusted);
  Result<void> append(const MarkedText& text) { return append_part(text, 0, text.text.size()); }
  // Bytes [begin, end) of a text with their marks.
  Result<void> append_part(const MarkedText& text, std::size_t begin, std::size_t end);
  Result<void> append_times(const MarkedText& text, std::size_t times);

  std::size_t size() const { return built_.text.size(); }
  const MarkedText& text() const { return built_; }
  // The text, whose memory the caller counts.
  MarkedText take() { return std::move(built_); }
  // The text as a value.
  Value finish(bool markup = false) { return runtime_.text(std::move(built_), markup); }

 private:
  Result<void> grow(std::size_t bytes, std::size_t spans);

  Runtime& runtime_;
  Held held_;
  MarkedText built_;
  std::size_t uncounted_ = 0;  // bytes that were copied since the last step
};

// Calls `visit(begin, end, untrusted)` for each run of bytes of the same trust, in order, until it
// fails.
template <class Visit>
Result<void> for_each_run(const MarkedText& text, Visit visit) {
  std::size_t at = 0;
  for (const Span span : text.untrusted) {
    if (span.begin > at) MOTLEY_TRY_VOID(visit(at, span.begin, false));
    MOTLEY_TRY_VOID(visit(span.begin, span.end, true));
    at = span.end;
  }
  if (at < text.text.size()) MOTLEY_TRY_VOID(visit(at, text.text.size(), false));
  return {};
}

}  // namespace motley::text::jinja
