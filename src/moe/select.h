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

// The first backend that supports the problem; with `forced` (--experts-backend) only that one. The
// error lists every candidate with its reason.
Result<const Backend*> select(const Problem& problem, std::span<const Backend* const> backends,
                              std::optional<std::string_view> forced = std::nullopt);

// A faster backend that was not chosen, and why.
struct PassedOver {
  std::string_view backend;
  std::string reason;

  friend auto operator<=>(const PassedOver&, const PassedOver&) = default;
};
// The backends before the chosen one, fastest first. Those that support the problem but were
// excluded by --experts-backend are not listed.
std::vector<PassedOver> passed_over(const Problem& problem, const Backend& chosen);

}  // namespace motley::moe
