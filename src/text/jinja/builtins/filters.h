#pragma once

#include <string_view>

#include "base/result.h"
#include "text/jinja/builtins/arguments.h"
#include "text/jinja/runtime.h"
#include "text/jinja/values/value.h"

namespace motley::text::jinja {

// value|name(...): the value is the first of the arguments.
struct Filter {
  std::string_view name;
  Result<Value> (*call)(Runtime& runtime, Arguments& arguments);
};

// value is name(...): likewise.
struct Test {
  std::string_view name;
  Result<bool> (*call)(Runtime& runtime, Arguments& arguments);
};

// Null where there is none of the name.
const Filter* find_filter(std::string_view name);
const Test* find_test(std::string_view name);

// What Jinja has and this engine refuses: filters with no use in chats, or no fixed result.
bool is_refused_filter(std::string_view name);

}  // namespace motley::text::jinja
