#pragma once

#include "engine/requests/sampling_params.h"
#include "server/api/fields/fields.h"
#include "server/api/fields/generation_fields.h"

namespace motley::server {

// Restricts which tokens may be drawn: `allowed_token_ids` and `bad_words`.
Result<void> read_bans(Fields& fields, const ApiContext& context, engine::SamplingParams& into);

}  // namespace motley::server
