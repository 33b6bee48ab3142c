#include "text/jinja/values/represent.h"

#include <algorithm>
#include <cmath>

#include "base/cat.h"
#include "text/jinja/loop.h"
#include "text/jinja/operators.h"
#include "text/jinja/syntax/cursor.h"
#include "text/jinja/values/characters.h"
#include "text/jinja/values/numbers.h"
#include "text/jinja/values/sorting.h"

namespace motley::text::jinja {
namespace {

constexpr char hex_digits[] = "0123456789abcdef";

void append_hex(std::string& text, char32_t value, int digits) {
  for (int i = digits - 1; i >= 0; --i) text += hex_digits[(value >> (4 * i)) & 0xFU];
}

// Appends a part of a Python string literal.
void append_quotable(std::string& text, std::string_view piece, char quote) {
  for (std::size_t at = 0; at < piece.size();) {
    const Character character = character_at(piece, at);
    const char32_t point = character.code_point;
    const std::string_view bytes = piece.substr(at, character.bytes);
    at += character.bytes;
    if (point == static_cast<unsigned char>(quote) || point == '\\') {
      text += '\\';
      text += bytes;
    } else if (point == '\n') {
      text += "\\n";
    } else if (point == '\r') {
      text += "\\r";
    } else if (point == '\t') {
      text += "\\t";
    } else if (has(point, printable_character)) {
      text += bytes;
    } else if (point < 0x100) {
      text += "\\x";
      append_hex(text, point, 2);
    } else if (point < 0x10000) {
      text += "\\u";
      append_hex(text, point, 4);
    } else {
      text += "\\U";
      append_hex(text, point, 8);
    }
  }
}

void append_json_escaped(std::string& text, std::string_view piece, bool ascii) {
  for (std::size_t at = 0; at < piece.size();) {
    const Character character = character_at(piece, at);
    const char32_t point = character.code_point;
    const std::string_view bytes = piece.substr(at, character.bytes);
    at += character.bytes;
    switch (point) {
      case '"':
        text += "\\\"";
        continue;
      case '\\':
        text += "\\\\";
        continue;
      case '\n':
        text += "\\n";
        continue;
      case '\r':
        text += "\\r";
        continue;
      case '\t':
        text += "\\t";
        continue;
      case '\b':
        text += "\\b";
        continue;
      case '\f':
        text += "\\f";
        continue;
      default:
        break;
    }
    if (point < 0x20 || (ascii && point > 0x7E && point < 0x10000)) {
      text += "\\u";
      append_hex(text, point, 4);
    } else if (ascii && point >= 0x10000) {
      text += "\\u";
      append_hex(text, 0xD800 + ((point - 0x10000) >> 10), 4);
      text += "\\u";
      append_hex(text, 0xDC00 + ((point - 0x10000) & 0x3FFU), 4);
    } else {
      text += bytes;
    }
  }
}

// Applies `escape` to the string's bytes and keeps their marks; the quotes are untrusted if
// anything between them is.
template <class Escape>
Result<void> append_quoted(TextBuilder& out, const String& string, std::string_view quote,
                           Escape escape) {
  MOTLEY_TRY_VOID(out.append(quote, string.any_untrusted()));
  std::string piece;
  const auto convert = [&](std::size_t at, std::size_t end, bool untrusted) -> Result<void> {
    while (at < end) {
      std::size_t next = std::min(at + piece_bytes, end);
      // Runs end between characters.
      if (next < end) next = character_before(string.text(), next);
      piece.clear();
      escape(piece, string.text().substr(at, next - at));
      MOTLEY_TRY_VOID(out.append(piece, untrusted));
      at = next;
    }
    return {};
  };
  MOTLEY_TRY_VOID(for_each_run(string.marked, convert));
  return out.append(quote, string.any_untrusted());
}

// Writes one value into one text.
class Writer {
 public:
  Writer(TextBuilder& out, Runtime& runtime) : runtime_(runtime), out_(out) {}

 protected:
  Result<Depth> begin() {
    MOTLEY_TRY_VOID(runtime_.step());
    return runtime_.deeper();
  }
  Result<void> put(std::string_view text) { return out_.append(text, false); }

  Runtime& runtime_;
  TextBuilder& out_;
};

class ReprWriter : public Writer {
 public:
  using Writer::Writer;

  // By value: a loop that reads its items may change the list that is being written.
  Result<void> write(Value value) {
    MOTLEY_TRY(const auto deeper, begin());
    switch (value.kind()) {
      case Kind::missing:
      case Kind::undefined:
        return put("Undefined");
      case Kind::none:
        return put("None");
      case Kind::boolean:
        return put(value.boolean() ? "True" : "False");
      case Kind::integer:
        return put(cat(value.integer()));
      case Kind::big_integer:
        return put(value.big_integer().digits);
      case Kind::number:
        return put(float_repr(value.number()));
      case Kind::string:
        return write_string(value.string());
      case Kind::list:
        return write_items("[", value.sequence().items, "]");
      case Kind::tuple: {
        const auto& items = value.sequence().items;
        return write_items("(", items, items.size() == 1 ? ",)" : ")");
      }
      case Kind::dict:
        return write_dict(value.dict());
      case Kind::view:
        return write_view(value);
      case Kind::range:
        return write_range(value.range());
      case Kind::generator:
        return put("<generator object>");
      case Kind::name_space:
        MOTLEY_TRY_VOID(put("<Namespace "));
        MOTLEY_TRY_VOID(write_dict(value.name_space().attributes));
        return put(">");
      case Kind::callable:
        return put(value.callable().name());
      case Kind::loop: {
        MOTLEY_TRY(const std::size_t length, value.loop().length(runtime_));
        return put(cat("<LoopContext ", value.loop().index0 + 1, "/", length, ">"));
      }
      case Kind::cycler:
        return put("<Cycler object>");
    }
    return {};
  }

 private:
  Result<void> write_string(const String& string) {
    MOTLEY_TRY_VOID(runtime_.scan(string.text().size()));
    if (string.markup) MOTLEY_TRY_VOID(put("Markup("));
    const bool has_single = string.text().find('\'') != std::string_view::npos;
    const bool has_double = string.text().find('"') != std::string_view::npos;
    const char quote = has_single && !has_double ? '"' : '\'';
    MOTLEY_TRY_VOID(append_quoted(out_, string, std::string_view(&quote, 1),
                                  [quote](std::string& text, std::string_view piece) {
                                    append_quotable(text, piece, quote);
                                  }));
    return string.markup ? put(")") : Result<void>();
  }

  Result<void> write_items(std::string_view open, const std::vector<Value>& items,
                           std::string_view close) {
    MOTLEY_TRY_VOID(put(open));
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) MOTLEY_TRY_VOID(put(", "));
      MOTLEY_TRY_VOID(write(items[i]));
    }
    return put(close);
  }

  Result<void> write_dict(const Dict& dict) {
    MOTLEY_TRY_VOID(put("{"));
    for (std::size_t i = 0; i < dict.size(); ++i) {
      if (i > 0) MOTLEY_TRY_VOID(put(", "));
      MOTLEY_TRY_VOID(write(dict.entries()[i].first));
      MOTLEY_TRY_VOID(put(": "));
      MOTLEY_TRY_VOID(write(dict.entries()[i].second));
    }
    return put("}");
  }

  Result<void> write_view(const Value& value) {
    MOTLEY_TRY(const std::vector<Value> items, to_vector(runtime_, value));
    MOTLEY_TRY_VOID(put(type_name(value)));
    return write_items("([", items, "])");
  }

  Result<void> write_range(const Range& range) {
    MOTLEY_TRY_VOID(put(cat("range(", range.start, ", ", range.stop)));
    if (range.step != 1) MOTLEY_TRY_VOID(put(cat(", ", range.step)));
    return put(")");
  }
};

class JsonWriter : public Writer {
 public:
  JsonWriter(TextBuilder& out, Runtime& runtime, const JsonStyle& style)
      : Writer(out, runtime), style_(style) {}

  // By value: a loop that reads its items may change the list that is being written.
  Result<void> write(Value value) {
    MOTLEY_TRY(const auto deeper, begin());
    switch (value.kind()) {
      case Kind::string:
        return write_string(value.string());
      case Kind::list:
      case Kind::tuple:
        return write_list(value.sequence().items);
      case Kind::dict:
        return write_dict(value.dict());
      default:
        break;
    }
    const std::string text = scalar(value);
    if (text.empty())
      return failure(cat("Object of type ", type_name(value), " is not JSON serializable"));
    return put(text);
  }

 private:
  static std::string scalar(const Value& value) {
    switch (value.kind()) {
      case Kind::none:
        return "null";
      case Kind::boolean:
        return value.boolean() ? "true" : "false";
      case Kind::integer:
        return cat(value.integer());
      case Kind::big_integer:
        return value.big_integer().digits;
      case Kind::number:
        if (std::isnan(value.number())) return "NaN";
        if (std::isinf(value.number())) return value.number() < 0 ? "-Infinity" : "Infinity";
        return float_repr(value.number());
      default:
        return {};
    }
  }

  Result<void> write_string(const String& string) {
    MOTLEY_TRY_VOID(runtime_.scan(string.text().size()));
    return append_quoted(out_, string, "\"", [this](std::string& text, std::string_view piece) {
      append_json_escaped(text, piece, style_.ascii);
    });
  }

  Result<void> new_line() {
    if (!style_.pretty) return {};
    MOTLEY_TRY_VOID(put("\n"));
    return out_.append_times(style_.indent, level_);
  }

  Result<void> write_list(const std::vector<Value>& items) {
    if (items.empty()) return put("[]");
    MOTLEY_TRY_VOID(put("["));
    ++level_;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) MOTLEY_TRY_VOID(out_.append(style_.item_separator));
      MOTLEY_TRY_VOID(new_line());
      MOTLEY_TRY_VOID(write(items[i]));
    }
    --level_;
    MOTLEY_TRY_VOID(new_line());
    return put("]");
  }

  Result<void> write_dict(const Dict& dict) {
    if (dict.size() == 0) return put("{}");
    std::vector<std::size_t> order;
    Held held(runtime_);
    if (style_.sort_keys) {
      MOTLEY_TRY_VOID(held.grow(dict.size() * sizeof(std::size_t)));
      MOTLEY_TRY(order, order_of_keys(dict));
    }
    MOTLEY_TRY_VOID(put("{"));
    ++level_;
    // Writing the entries changes no dict.
    for (std::size_t i = 0; i < dict.size(); ++i) {
      const auto& [key, value] = dict.entries()[style_.sort_keys ? order[i] : i];
      if (i > 0) MOTLEY_TRY_VOID(out_.append(style_.item_separator));
      MOTLEY_TRY_VOID(new_line());
      MOTLEY_TRY_VOID(write_key(key));
      MOTLEY_TRY_VOID(out_.append(style_.key_separator));
      MOTLEY_TRY_VOID(write(value));
    }
    --level_;
    MOTLEY_TRY_VOID(new_line());
    return put("}");
  }

  Result<void> write_key(const Value& key) {
    if (key.is(Kind::string)) return write_string(key.string());
    const std::string text = scalar(key);
    if (text.empty())
      return failure(cat("keys must be str, int, float, bool or None, not ", type_name(key)));
    return put(cat("\"", text, "\""));
  }

  Result<std::vector<std::size_t>> order_of_keys(const Dict& dict) {
    MOTLEY_TRY_VOID(runtime_.step(dict.size()));
    MOTLEY_TRY_VOID(runtime_.reserve(dict.size(), sizeof(Value)));
    std::vector<Value> keys;
    keys.reserve(dict.size());
    for (const auto& entry : dict.entries()) keys.push_back(entry.first);
    return sorted_order(runtime_, keys, false);
  }

  const JsonStyle& style_;
  std::size_t level_ = 0;
};

}  // namespace

Result<void> append_represented(TextBuilder& out, Runtime& runtime, const Value& value) {
  return ReprWriter(out, runtime).write(value);
}

Result<Value> represent(Runtime& runtime, const Value& value) {
  TextBuilder out(runtime);
  MOTLEY_TRY_VOID(append_represented(out, runtime, value));
  return out.finish();
}

Result<void> append_text(TextBuilder& out, Runtime& runtime, const Value& value) {
  if (value.is(Kind::string)) return out.append(value.string().marked);
  if (value.is(Kind::undefined)) return {};
  return append_represented(out, runtime, value);
}

Result<Value> to_string(Runtime& runtime, const Value& value) {
  if (value.is(Kind::string)) return value;
  TextBuilder out(runtime);
  MOTLEY_TRY_VOID(append_text(out, runtime, value));
  return out.finish();
}

Result<Value> to_json(Runtime& runtime, const Value& value, const JsonStyle& style) {
  TextBuilder out(runtime);
  MOTLEY_TRY_VOID(JsonWriter(out, runtime, style).write(value));
  return out.finish();
}

}  // namespace motley::text::jinja
