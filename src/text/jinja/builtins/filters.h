#pragma once

#include <string_view>

#include "base/result.h"
#include "text/jinja/builtins/arguments.h"
#include "text/jinja/runtime.h"
#include "text/jinja/values/value.h"

namespace motley::text::jinja {

// value|name(...): the value is the first argument.
struct Filter {
  std::string_view name;
  Result<Value> (*call)(Runtime& runtime, Arguments& arguments);
};

// value is name(...): likewise.
struct Test {
  std::string_view name;
  Result<bool> (*call)(Runtime& runtime, Arguments& arguments);
};

// Null if there is none of that name.
const Filter* find_filter(std::string_view name);
const Test* find_test(std::string_view name);

// Whether Jinja has the filter and this engine refuses it: useless in chats, or without a fixed
// result.
bool is_refused_filter(std::string_view name);

}  // namespace motley::text::jinja
