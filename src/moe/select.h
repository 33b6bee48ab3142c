#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "moe/backend.h"
#include "moe/problem.h"

namespace motley::moe {

// Every backend that this build has for devices of a kind, the fastest first.
std::span<const Backend* const> backends_of(tensor::DeviceKind device);

// The first backend that can; with `forced` (--experts-backend) that one or nothing. The error
// lists every backend that was asked, with its reason.
Result<const Backend*> select(const Problem& problem, std::span<const Backend* const> backends,
                              std::optional<std::string_view> forced = std::nullopt);

// Why a backend that would have been faster was not taken.
struct PassedOver {
  std::string_view backend;
  std::string reason;

  friend auto operator<=>(const PassedOver&, const PassedOver&) = default;
};
// Those before the chosen one, the fastest first. One that could have served was passed over by
// --experts-backend, and is not among them.
std::vector<PassedOver> passed_over(const Problem& problem, const Backend& chosen);

}  // namespace motley::moe
