#pragma once

#include <optional>
#include <string_view>

#include "base/result.h"
#include "engine/requests/sampling_params.h"
#include "server/api/fields/fields.h"

namespace motley::server {

struct GrammarField {
  grammar::Spec spec;
  std::string_view name;  // of the requesting field
  bool strict = false;    // its whole schema must be enforced
};

// The required form of the output: response_format, one of guided_json, guided_regex,
// guided_grammar and guided_choice, or one of structured_outputs. At most one of them may be set.
Result<std::optional<GrammarField>> read_grammar(Fields& fields);

// The same of `text.format` of a response, {"type", "name", "schema", "strict"}.
Result<std::optional<GrammarField>> read_text_format(Fields format);

}  // namespace motley::server
