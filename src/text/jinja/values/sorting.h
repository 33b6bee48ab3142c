#pragma once

#include <cstddef>
#include <vector>

#include "base/result.h"
#include "text/jinja/runtime.h"
#include "text/jinja/values/value.h"

namespace motley::text::jinja {

// Indices in order of ascending or descending keys; equal keys keep their order. Keys that cannot
// be compared are an error.
Result<std::vector<std::size_t>> sorted_order(Runtime& runtime, const std::vector<Value>& keys,
                                              bool descending);

}  // namespace motley::text::jinja
