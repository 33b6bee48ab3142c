#include "text/jinja/values/text_builder.h"

#include <algorithm>

namespace motley::text::jinja {
namespace {

// Makes room for `more` items. Counts old and new memory while one is copied to the other.
template <class Items>
Result<void> make_room(Held& held, Items& items, std::size_t more) {
  using Item = typename Items::value_type;
  const std::size_t before = items.capacity();
  if (more <= before - items.size()) return {};
  const std::size_t wanted = std::max(items.size() + more, 2 * before);
  MOTLEY_TRY_VOID(held.grow((wanted + 1) * sizeof(Item)));
  items.reserve(wanted);
  held.shrink(std::min(before, wanted) * sizeof(Item));
  return {};
}

}  // namespace

Result<void> TextBuilder::grow(std::size_t bytes, std::size_t spans) {
  uncounted_ += bytes;
  if (uncounted_ >= 64) {
    MOTLEY_TRY_VOID(runtime_.step(uncounted_ / 64));
    uncounted_ %= 64;
  }
  if (spans > 0) MOTLEY_TRY_VOID(make_room(held_, built_.untrusted, spans));
  return make_room(held_, built_.text, bytes);
}

Result<void> TextBuilder::append(std::string_view bytes, bool untrusted) {
  MOTLEY_TRY_VOID(grow(bytes.size(), untrusted ? 1 : 0));
  built_.append(bytes, untrusted);
  return {};
}

Result<void> TextBuilder::append_part(const MarkedText& text, std::size_t begin, std::size_t end) {
  MOTLEY_TRY_VOID(grow(end - begin, text.spans_in(begin, end)));
  built_.append_part(text, begin, end);
  return {};
}

Result<void> TextBuilder::append_times(const MarkedText& text, std::size_t times) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(times, text.text.size(), &bytes)) return runtime_.reserve(SIZE_MAX);
  if (bytes == 0) return {};
  // Of a text that is untrusted as a whole, all copies are one span.
  const bool one_span =
      text.untrusted.size() == 1 && text.untrusted[0] == Span{.begin = 0, .end = text.text.size()};
  MOTLEY_TRY_VOID(grow(bytes, one_span ? 1 : times * text.untrusted.size()));
  if (text.untrusted.empty() && text.text.size() == 1) {
    built_.text.append(times, text.text[0]);
    return {};
  }
  MOTLEY_TRY_VOID(runtime_.step(times / 8));
  for (std::size_t i = 0; i < times; ++i) built_.append(text);
  return {};
}

}  // namespace motley::text::jinja
