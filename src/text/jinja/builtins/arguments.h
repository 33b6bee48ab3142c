#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/cat.h"
#include "text/jinja/runtime.h"
#include "text/jinja/values/value.h"

namespace motley::text::jinja {

// The arguments of a call.
class Arguments {
 public:
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> keyword;

  // The values in the order of the parameters; missing if the call omits them. A parameter with an
  // empty name cannot be given by name.
  template <std::size_t Count>
  Result<std::array<Value, Count>> bind(std::string_view function,
                                        const std::array<std::string_view, Count>& parameters,
                                        std::size_t required) const {
    std::array<Value, Count> values;
    if (positional.size() > Count)
      return failure(
          cat(function, "() takes at most ", Count, " arguments, not ", positional.size()));
    for (std::size_t i = 0; i < positional.size(); ++i) values[i] = positional[i];
    for (const auto& [name, value] : keyword) {
      std::size_t at = 0;
      while (at < Count && (parameters[at] != name || name.empty())) ++at;
      if (at == Count)
        return failure(cat(function, "() takes no argument named ", quote(shortened(name))));
      if (!values[at].is(Kind::missing))
        return failure(
            cat(function, "() is given the argument ", quote(shortened(name)), " twice"));
      values[at] = value;
    }
    for (std::size_t i = 0; i < required; ++i) {
      if (values[i].is(Kind::missing))
        return failure(cat(function, "() lacks its argument ", i + 1, ", ", parameters[i]));
    }
    return values;
  }
  Result<void> bind_nothing(std::string_view function) const {
    if (positional.empty() && keyword.empty()) return {};
    return failure(cat(function, "() takes no arguments"));
  }
};

// An integer or a boolean, which Python accepts for counts and indexes.
Result<std::int64_t> as_count(const Value& value);
Result<std::int64_t> as_count_or(const Value& value, std::int64_t if_missing);

// The value's truth; false if it is missing.
Result<bool> as_flag(Runtime& runtime, const Value& value);

// A string, or an error that names the function.
Result<const String*> as_text(const Value& value, std::string_view function);

}  // namespace motley::text::jinja
