#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"
#include "engine/requests/routed_experts.h"
#include "server/api/fields/generation_fields.h"
#include "server/api/fields/token_lists.h"
#include "serving/answers/transcript.h"

namespace motley::server {

// Reads whether the answer has the experts of its tokens, and from which one of the prompt on.
// Where the server keeps them (`sizes`) it has them unless the request says otherwise, as in vLLM;
// but not a stream, unless those of the route have them.
enum class RoutedInStreams : bool { no, yes };
Result<void> read_routed_fields(Fields& fields, const engine::RoutedExpertsSizes& sizes,
                                RoutedInStreams streams, GenerationFields& into);

// Appends a choice's as the JSON string of a .npy file, [tokens, layers, top_k], or its rest until
// the piece is long enough. True at its end.
bool write_routed(std::string& piece, ListPlace& place, const serving::Transcript& transcript,
                  std::size_t index, const engine::RoutedExpertsSizes& sizes);

}  // namespace motley::server
