#pragma once

#include "base/result.h"
#include "server/api/fields/fields.h"

namespace motley::server {

// Fields of other servers that would change the answer and can't be followed: refused by name,
// unless their value asks for nothing. `choices` is `n`.
Result<void> refuse_unsupported(Fields& fields, int choices);

}  // namespace motley::server
