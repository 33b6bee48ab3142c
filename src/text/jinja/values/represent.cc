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
void append_escaped(std::string& text, std::string_view piece, char quote) {
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
void append_quoted(MarkedText& out, const String& string, std::string_view quote, Escape escape) {
  out.append(quote, string.any_untrusted());
  std::size_t at = 0;
  std::string piece;
  const auto put = [&](std::size_t end, bool untrusted) {
    piece.clear();
    escape(piece, string.text().substr(at, end - at));
    out.append(piece, untrusted);
    at = end;
  };
  for (const Span span : string.marked.untrusted) {
    put(span.begin, false);
    put(span.end, true);
  }
  put(string.text().size(), false);
  out.append(quote, string.any_untrusted());
}

// Writes one value into one text.
class Writer {
 public:
  explicit Writer(Runtime& runtime) : runtime_(runtime) {}
  MarkedText take() { return std::move(out_); }

 protected:
  Result<Depth> begin() {
    MOTLEY_TRY_VOID(runtime_.step());
    MOTLEY_TRY_VOID(runtime_.reserve(out_.text.size()));
    return runtime_.deeper();
  }
  void put(std::string_view text) { out_.append(text, false); }

  Runtime& runtime_;
  MarkedText out_;
};

class ReprWriter : public Writer {
 public:
  using Writer::Writer;

  Result<void> write(const Value& value) {
    MOTLEY_TRY(const auto deeper, begin());
    switch (value.kind()) {
      case Kind::missing:
      case Kind::undefined:
        put("Undefined");
        return {};
      case Kind::none:
        put("None");
        return {};
      case Kind::boolean:
        put(value.boolean() ? "True" : "False");
        return {};
      case Kind::integer:
        put(cat(value.integer()));
        return {};
      case Kind::big_integer:
        put(value.big_integer().digits);
        return {};
      case Kind::number:
        put(float_repr(value.number()));
        return {};
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
        put("<generator object>");
        return {};
      case Kind::name_space:
        put("<Namespace ");
        MOTLEY_TRY_VOID(write_dict(value.name_space().attributes));
        put(">");
        return {};
      case Kind::callable:
        put(value.callable().name());
        return {};
      case Kind::loop: {
        MOTLEY_TRY(const std::size_t length, value.loop().length(runtime_));
        put(cat("<LoopContext ", value.loop().index0 + 1, "/", length, ">"));
        return {};
      }
      case Kind::cycler:
        put("<Cycler object>");
        return {};
    }
    return {};
  }

 private:
  Result<void> write_string(const String& string) {
    MOTLEY_TRY_VOID(runtime_.scan(string.text().size()));
    if (string.markup) put("Markup(");
    const bool has_single = string.text().find('\'') != std::string_view::npos;
    const bool has_double = string.text().find('"') != std::string_view::npos;
    const char quote = has_single && !has_double ? '"' : '\'';
    append_quoted(
        out_, string, std::string_view(&quote, 1),
        [quote](std::string& text, std::string_view piece) { append_escaped(text, piece, quote); });
    if (string.markup) put(")");
    return {};
  }

  Result<void> write_items(std::string_view open, const std::vector<Value>& items,
                           std::string_view close) {
    put(open);
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) put(", ");
      MOTLEY_TRY_VOID(write(items[i]));
    }
    put(close);
    return {};
  }

  Result<void> write_dict(const Dict& dict) {
    put("{");
    for (std::size_t i = 0; i < dict.size(); ++i) {
      if (i > 0) put(", ");
      MOTLEY_TRY_VOID(write(dict.entries()[i].first));
      put(": ");
      MOTLEY_TRY_VOID(write(dict.entries()[i].second));
    }
    put("}");
    return {};
  }

  Result<void> write_view(const Value& value) {
    MOTLEY_TRY(const std::vector<Value> items, to_vector(runtime_, value));
    put(type_name(value));
    return write_items("([", items, "])");
  }

  Result<void> write_range(const Range& range) {
    put(cat("range(", range.start, ", ", range.stop));
    if (range.step != 1) put(cat(", ", range.step));
    put(")");
    return {};
  }
};

class JsonWriter : public Writer {
 public:
  JsonWriter(Runtime& runtime, const JsonStyle& style) : Writer(runtime), style_(style) {}

  Result<void> write(const Value& value) {
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
    put(text);
    return {};
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
    append_quoted(out_, string, "\"", [this](std::string& text, std::string_view piece) {
      append_json_escaped(text, piece, style_.ascii);
    });
    return {};
  }

  Result<void> new_line() {
    if (!style_.pretty) return {};
    MOTLEY_TRY_VOID(runtime_.reserve(level_, style_.indent.text.size()));
    put("\n");
    for (std::size_t i = 0; i < level_; ++i) out_.append(style_.indent);
    return {};
  }

  Result<void> write_list(const std::vector<Value>& items) {
    if (items.empty()) return put("[]"), Result<void>();
    put("[");
    ++level_;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.append(style_.item_separator);
      MOTLEY_TRY_VOID(new_line());
      MOTLEY_TRY_VOID(write(items[i]));
    }
    --level_;
    MOTLEY_TRY_VOID(new_line());
    put("]");
    return {};
  }

  Result<void> write_dict(const Dict& dict) {
    if (dict.size() == 0) return put("{}"), Result<void>();
    std::vector<Dict::Entry> entries = dict.entries();
    if (style_.sort_keys) MOTLEY_TRY_VOID(sort_entries(entries));
    put("{");
    ++level_;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_.append(style_.item_separator);
      MOTLEY_TRY_VOID(new_line());
      MOTLEY_TRY_VOID(write_key(entries[i].first));
      out_.append(style_.key_separator);
      MOTLEY_TRY_VOID(write(entries[i].second));
    }
    --level_;
    MOTLEY_TRY_VOID(new_line());
    put("}");
    return {};
  }

  Result<void> write_key(const Value& key) {
    if (key.is(Kind::string)) return write_string(key.string());
    const std::string text = scalar(key);
    if (text.empty())
      return failure(cat("keys must be str, int, float, bool or None, not ", type_name(key)));
    put(cat("\"", text, "\""));
    return {};
  }

  Result<void> sort_entries(std::vector<Dict::Entry>& entries) {
    std::vector<Value> keys;
    keys.reserve(entries.size());
    for (const auto& entry : entries) keys.push_back(entry.first);
    MOTLEY_TRY(const std::vector<std::size_t> order, sorted_order(runtime_, keys, false));
    std::vector<Dict::Entry> sorted;
    sorted.reserve(entries.size());
    for (const std::size_t at : order) sorted.push_back(entries[at]);
    entries = std::move(sorted);
    return {};
  }

  const JsonStyle& style_;
  std::size_t level_ = 0;
};

}  // namespace

Result<MarkedText> represent(Runtime& runtime, const Value& value) {
  ReprWriter writer(runtime);
  MOTLEY_TRY_VOID(writer.write(value));
  return writer.take();
}

Result<MarkedText> to_text(Runtime& runtime, const Value& value) {
  if (value.is(Kind::string)) {
    MOTLEY_TRY_VOID(runtime.scan(value.string().text().size()));
    return value.string().marked;
  }
  if (value.is(Kind::undefined)) return MarkedText();
  return represent(runtime, value);
}

Result<Value> to_string(Runtime& runtime, const Value& value) {
  if (value.is(Kind::string)) return value;
  MOTLEY_TRY(MarkedText text, to_text(runtime, value));
  return runtime.text(std::move(text));
}

Result<MarkedText> to_json(Runtime& runtime, const Value& value, const JsonStyle& style) {
  JsonWriter writer(runtime, style);
  MOTLEY_TRY_VOID(writer.write(value));
  return writer.take();
}

}  // namespace motley::text::jinja
