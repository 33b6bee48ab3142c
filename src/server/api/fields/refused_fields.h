#pragma once

#include "base/result.h"
#include "server/api/fields/fields.h"

namespace motley::server {

// Refuses fields of other servers that would change the answer and are not implemented, unless
// their value has no effect. `choices` is `n`.
Result<void> refuse_unsupported(Fields& fields, int choices);

}  // namespace motley::server
