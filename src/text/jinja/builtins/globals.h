#pragma once

#include "base/result.h"
#include "text/jinja/runtime.h"
#include "text/jinja/values/value.h"

namespace motley::text::jinja {

// Adds the functions that every template has: range, dict, namespace, cycler, joiner,
// raise_exception and strftime_now.
Result<void> add_globals(Runtime& runtime, Dict& context);

}  // namespace motley::text::jinja
