#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "text/jinja/builtins/arguments.h"
#include "text/jinja/runtime.h"
#include "text/jinja/values/text_builder.h"
#include "text/jinja/values/value.h"

// Values as text. Untrusted parts of strings stay marked; everything between them is trusted.
namespace motley::text::jinja {

// str(value); a string is itself, markup or not.
Result<Value> to_string(Runtime& runtime, const Value& value);
// Appends the same.
Result<void> append_text(TextBuilder& out, Runtime& runtime, const Value& value);

// repr(value), a string.
Result<Value> represent(Runtime& runtime, const Value& value);
Result<void> append_represented(TextBuilder& out, Runtime& runtime, const Value& value);

struct JsonStyle {
  bool ascii = false;
  bool sort_keys = false;
  bool pretty = false;  // on several lines, each level indented once more
  MarkedText indent;
  MarkedText item_separator{.text = ", "};
  MarkedText key_separator{.text = ": "};
};

// json.dumps(value), a string.
Result<Value> to_json(Runtime& runtime, const Value& value, const JsonStyle& style);

}  // namespace motley::text::jinja
