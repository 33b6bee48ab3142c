#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "hub/cache.h"

namespace motley::cli {

// What the environment says. It is read once, at the start of the program, and only here.
struct Environment {
  hub::Cache hub;
};

// Of this process.
Environment read_environment();

// The value of a variable; nothing if it is not set.
using Variables = FunctionRef<std::optional<std::string>(std::string_view name)>;
// The home folder of a user, or of the process's own if the name is empty; nothing if it is
// unknown.
using Homes = FunctionRef<std::optional<std::string>(std::string_view user)>;

// HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME, XDG_CACHE_HOME, HF_HUB_OFFLINE and
// TRANSFORMERS_OFFLINE, with the meaning that huggingface_hub gives them.
Environment read_environment(Variables variables, Homes homes);

}  // namespace motley::cli
