#pragma once

#include <span>
#include <string_view>

#include "base/result.h"
#include "text/jinja/builtins/arguments.h"
#include "text/jinja/runtime.h"
#include "text/jinja/values/value.h"

namespace motley::text::jinja {

// A method of Python's str, list, tuple, dict or range.
struct Method {
  std::string_view name;
  Result<Value> (*call)(Runtime& runtime, const Value& self, Arguments& arguments);
};

// By name, in order.
std::span<const Method> string_methods();

// Whether Python has a method of that name that changes a list or dict, which is refused here.
bool changes_in_place(Kind kind, std::string_view name);

}  // namespace motley::text::jinja
