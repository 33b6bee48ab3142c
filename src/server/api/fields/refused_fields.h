#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"
#include "server/api/fields/fields.h"

namespace motley::server {

// Values of a field that have no effect, besides null.
enum class Neutral : std::uint8_t {
  none,
  off,        // false
  one,        // the number
  empty,      // a text, a list or an object
  text_only,  // a list of "text" alone
};

struct RefusedField {
  std::string_view name;
  Neutral neutral;
  std::string_view what;
};

// Refuses these, unless their value has no effect.
Result<void> refuse(Fields& fields, std::span<const RefusedField> refused);

// Refuses fields of other servers that would change the answer and are not implemented, unless
// their value has no effect. `choices` is `n`.
Result<void> refuse_unsupported(Fields& fields, int choices);

}  // namespace motley::server
