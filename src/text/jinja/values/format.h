#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/jinja/builtins/arguments.h"
#include "text/jinja/runtime.h"
#include "text/jinja/values/value.h"

// Python's two ways of formatting text.
namespace motley::text::jinja {

// "%s of %d" % values
Result<Value> format_percent(Runtime& runtime, const String& format, const Value& values);

// "{} of {count}".format(...)
Result<Value> format_braces(Runtime& runtime, const String& format, const Arguments& arguments);

// format(value, specification), as in "{:>8.2f}": a string.
Result<Value> format_value(Runtime& runtime, const Value& value, std::string_view specification);

}  // namespace motley::text::jinja
