#pragma once

#include <optional>
#include <string_view>

#include "base/result.h"
#include "engine/sampling_params.h"
#include "server/api/fields.h"

namespace motley::server {

struct GrammarField {
  engine::GrammarSpec spec;
  std::string_view name;  // of the field that asks for it
};

// What the output must look like: response_format, or one of guided_json, guided_regex,
// guided_grammar and guided_choice. At most one of them may ask for something.
Result<std::optional<GrammarField>> read_grammar(Fields& fields);

}  // namespace motley::server
