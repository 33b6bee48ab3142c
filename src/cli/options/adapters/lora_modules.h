#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "serving/engine_settings.h"

namespace motley::cli {

// An item of vLLM's --lora-modules: NAME=PATH, a JSON object {"name", "path", "base_model_name",
// "is_3d_lora_weight"}, or a list of such objects. Paths may hold commas.
Result<std::vector<serving::StartAdapter>> parse_lora_modules(std::string_view item);

}  // namespace motley::cli
