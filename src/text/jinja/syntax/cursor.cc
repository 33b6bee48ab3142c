#include "text/jinja/syntax/cursor.h"

#include <algorithm>

#include "base/cat.h"
#include "text/jinja/values/characters.h"

namespace motley::text::jinja {

bool Cursor::can_walk(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::string:
    case Kind::list:
    case Kind::tuple:
    case Kind::dict:
    case Kind::view:
    case Kind::range:
    case Kind::generator:
      return true;
    default:
      return false;
  }
}

Result<Cursor> Cursor::over(const Value& value) {
  if (!can_walk(value)) return failure(cat("'", type_name(value), "' object is not iterable"));
  return Cursor(value);
}

Result<Value> Cursor::next(Runtime& runtime) {
  MOTLEY_TRY_VOID(runtime.step());
  switch (value_.kind()) {
    case Kind::string: {
      const String& string = value_.string();
      if (at_ >= string.text().size()) return Value();
      const std::size_t begin = at_;
      at_ += character_at(string.text(), at_).bytes;
      // plain text, even if the string is markup
      return runtime.text(string.marked.part(begin, at_));
    }
    case Kind::list:
    case Kind::tuple: {
      const auto& items = value_.sequence().items;
      return at_ < items.size() ? items[at_++] : Value();
    }
    case Kind::dict: {
      const auto& entries = value_.dict().entries();
      return at_ < entries.size() ? entries[at_++].first : Value();
    }
    case Kind::view: {
      const View& view = value_.view();
      if (at_ >= view.dict.size()) return Value();
      const Dict::Entry& entry = view.dict.entries()[at_++];
      if (view.part == View::Of::keys) return entry.first;
      if (view.part == View::Of::values) return entry.second;
      return entry_pair(runtime, entry);
    }
    case Kind::range: {
      const Range& range = value_.range();
      if (at_ >= static_cast<std::size_t>(range.size)) return Value();
      return range.at(static_cast<std::int64_t>(at_++));
    }
    case Kind::generator: {
      MOTLEY_TRY(const auto deeper, runtime.deeper());
      return value_.generator().next(runtime);
    }
    default:
      return Value();
  }
}

Result<std::vector<Value>> to_vector(Runtime& runtime, const Value& value) {
  MOTLEY_TRY(Cursor cursor, Cursor::over(value));
  std::vector<Value> items;
  while (true) {
    MOTLEY_TRY(const Value item, cursor.next(runtime));
    if (item.is(Kind::missing)) return items;
    if (items.size() == items.capacity()) {
      MOTLEY_TRY_VOID(runtime.reserve(1 + (3 * items.size()), sizeof(Value)));
      // For the rest of the rendering: the caller may keep them.
      runtime.heap().count(std::max<std::size_t>(1, items.size()) * sizeof(Value));
    }
    items.push_back(item);
  }
}

Value entry_pair(Runtime& runtime, const Dict::Entry& entry) {
  return runtime.tuple({entry.first, entry.second});
}

}  // namespace motley::text::jinja
