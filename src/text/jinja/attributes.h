#pragma once

#include <string_view>

#include "base/result.h"
#include "text/jinja/runtime.h"
#include "text/jinja/values/value.h"

// Attributes and items of values. What does not exist is undefined, not an error.
namespace motley::text::jinja {

// value.name: a Python method or attribute, or else the item of that name.
Result<Value> get_attribute(Runtime& runtime, const Value& value, std::string_view name);

// value[key]: the item, or else the method or attribute of that name.
Result<Value> get_item(Runtime& runtime, const Value& value, const Value& key);

// value[start:stop:step]
Result<Value> get_slice(Runtime& runtime, const Value& value, const Value& start, const Value& stop,
                        const Value& step);

// The Python methods of a value that templates may call; missing if there is none.
Value find_method(Runtime& runtime, const Value& value, std::string_view name);

}  // namespace motley::text::jinja
