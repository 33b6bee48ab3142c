#pragma once

#include <cstdint>

#include "base/result.h"
#include "text/jinja/syntax/source.h"
#include "text/jinja/syntax/syntax.h"

namespace motley::text::jinja {

// What the interpreter needs to know about the outermost scope.
struct Root {
  Scope scope;
  std::uint32_t slots = 0;
};

// Resolves every name of a template to its variable, as Jinja's compiler does, and every filter and
// test to its function. An unknown filter or test is an error; inside `if` only when it is called.
Result<Root> resolve(const Source& source, Block& block);

}  // namespace motley::text::jinja
