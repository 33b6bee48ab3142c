#pragma once

#include <cstdint>

#include "base/result.h"
#include "text/jinja/syntax/source.h"
#include "text/jinja/syntax/syntax.h"

namespace motley::text::jinja {

// What the interpreter needs to know of the outermost scope.
struct Root {
  Scope scope;
  std::uint32_t slots = 0;
};

// Gives every name of a template its variable, as Jinja's compiler would, and every filter and test
// its function. An unknown filter or test is an error, but inside `if` one where it is called.
Result<Root> resolve(const Source& source, Block& block);

}  // namespace motley::text::jinja
