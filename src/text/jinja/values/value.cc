#include "text/jinja/values/value.h"

#include <algorithm>
#include <bit>

#include "base/cat.h"
#include "text/jinja/operators.h"
#include "text/jinja/runtime.h"
#include "text/jinja/values/characters.h"

namespace motley::text::jinja {
namespace {

// Smaller dicts are searched linearly.
constexpr std::size_t indexed_size = 12;
// Of an entry in the index: its key and position, and the node of a tree.
constexpr std::size_t indexed_bytes = 56 + allocation_bytes;

}  // namespace

bool Value::same_as(const Value& other) const {
  if (kind_ != other.kind_) return false;
  switch (kind_) {
    case Kind::missing:
    case Kind::none:
      return true;
    case Kind::boolean:
      return boolean_ == other.boolean_;
    case Kind::integer:
      return integer_ == other.integer_;
    case Kind::number:
      return number_ == other.number_;
    default:
      return object_ == other.object_;
  }
}

String::String(MarkedText text, bool is_markup)
    : marked(std::move(text)), markup(is_markup), ascii(is_ascii(marked.text)) {}

const Value* Dict::find(std::string_view key) const {
  const std::ptrdiff_t at = position(key);
  return at < 0 ? nullptr : &entries_[static_cast<std::size_t>(at)].second;
}

Result<const Value*> Dict::find(Runtime& runtime, const Value& key) const {
  MOTLEY_TRY(const std::ptrdiff_t at, position(runtime, key));
  return at < 0 ? nullptr : &entries_[static_cast<std::size_t>(at)].second;
}

Result<void> Dict::set(Runtime& runtime, const Value& key, const Value& value) {
  MOTLEY_TRY(const std::ptrdiff_t at, position(runtime, key));
  if (at >= 0) {
    entries_[static_cast<std::size_t>(at)].second = value;
    return {};
  }
  entries_.emplace_back(key, value);
  // The entries grow by doubling.
  runtime.heap().count((2 * sizeof(Entry)) + indexed_bytes);
  if (entries_.size() < indexed_size) return {};
  const std::size_t first = positions_.empty() ? 0 : entries_.size() - 1;
  for (std::size_t i = first; i < entries_.size(); ++i) {
    if (entries_[i].first.is(Kind::string))
      positions_.emplace(entries_[i].first.string().text(), i);
  }
  return {};
}

std::ptrdiff_t Dict::position(std::string_view key) const {
  if (!positions_.empty()) {
    const auto found = positions_.find(key);
    return found == positions_.end() ? -1 : static_cast<std::ptrdiff_t>(found->second);
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Value& each = entries_[i].first;
    if (each.is(Kind::string) && each.string().text() == key) return static_cast<std::ptrdiff_t>(i);
  }
  return -1;
}

Result<std::ptrdiff_t> Dict::position(Runtime& runtime, const Value& key) const {
  MOTLEY_TRY_VOID(require_hashable(runtime, key));
  if (key.is(Kind::string)) {
    const std::string_view text = key.string().text();
    MOTLEY_TRY_VOID(runtime.step(1 + (text.size() / 64 * comparisons())));
    return position(text);
  }
  MOTLEY_TRY_VOID(runtime.step());
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    MOTLEY_TRY(const bool same, equal(runtime, entries_[i].first, key));
    if (same) return static_cast<std::ptrdiff_t>(i);
  }
  return std::ptrdiff_t{-1};
}

Range::Range(std::int64_t from, std::int64_t to, std::int64_t by)
    : start(from), stop(to), step(by), size(0) {
  const bool forward = by > 0;
  if (forward ? from >= to : from <= to) return;
  // Unsigned, because the ends may be far apart, and the smallest step has no negation.
  const auto low = static_cast<std::uint64_t>(forward ? from : to);
  const auto high = static_cast<std::uint64_t>(forward ? to : from);
  const std::uint64_t stride =
      forward ? static_cast<std::uint64_t>(by) : ~static_cast<std::uint64_t>(by) + 1;
  size = static_cast<std::int64_t>(
      std::min<std::uint64_t>(((high - low - 1) / stride) + 1, INT64_MAX));
}

// The most keys that a search for a text compares.
std::size_t Dict::comparisons() const {
  return positions_.empty() ? entries_.size() + 1 : std::bit_width(positions_.size()) + 1;
}

Value Heap::string(MarkedText marked, bool markup) {
  count_text(marked.text);
  count(marked.untrusted.capacity() * sizeof(Span));
  return Value::object(Kind::string, &make<String>(std::move(marked), markup));
}

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::missing:
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
    case Kind::big_integer:
      return "int";
    case Kind::number:
      return "float";
    case Kind::string:
      return value.string().markup ? "Markup" : "str";
    case Kind::list:
      return "list";
    case Kind::tuple:
      return "tuple";
    case Kind::dict:
      return "dict";
    case Kind::view:
      switch (value.view().part) {
        case View::Of::keys:
          return "dict_keys";
        case View::Of::values:
          return "dict_values";
        case View::Of::items:
          return "dict_items";
      }
      return "dict_items";
    case Kind::range:
      return "range";
    case Kind::generator:
      return "generator";
    case Kind::name_space:
      return "Namespace";
    case Kind::callable:
      return "function";
    case Kind::loop:
      return "LoopContext";
    case Kind::cycler:
      return "Cycler";
  }
  return "object";
}

bool is_hashable_kind(Kind kind) {
  return kind != Kind::list && kind != Kind::dict && kind != Kind::view;
}

}  // namespace motley::text::jinja
