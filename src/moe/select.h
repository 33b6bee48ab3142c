#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "base/result.h"
#include "moe/backend.h"
#include "moe/problem.h"

namespace motley::moe {

// Every backend of this build, the fastest first.
std::span<const Backend* const> all_backends();

// The first backend that can; with `forced` (--experts-backend) that one or nothing. The error
// lists every backend that was asked, with its reason.
Result<const Backend*> select(const Problem& problem, std::span<const Backend* const> backends,
                              std::optional<std::string_view> forced = std::nullopt);

}  // namespace motley::moe
