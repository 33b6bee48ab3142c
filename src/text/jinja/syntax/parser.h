#pragma once

#include "base/result.h"
#include "text/jinja/syntax/source.h"
#include "text/jinja/syntax/syntax.h"
#include "text/jinja/values/value.h"

namespace motley::text::jinja {

// Parses a template; its constants belong to `heap`. Names are not resolved yet.
Result<Block> parse(const Source& source, Heap& heap);

}  // namespace motley::text::jinja
