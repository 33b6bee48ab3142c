#include "moe/select.h"

#include <array>
#include <string>
#include <vector>

#include "base/cat.h"
#include "moe/cpu/cpu_grouped.h"
#include "moe/cuda/cuda_backends.h"
#include "moe/reference.h"

namespace motley::moe {

std::span<const Backend* const> backends_of(tensor::DeviceKind device) {
  static const CpuGrouped cpu_grouped;
  static const Reference reference;
  static const std::array<const Backend*, 2> on_cpu{&cpu_grouped, &reference};
  return device == tensor::DeviceKind::cpu ? std::span(on_cpu) : cuda_backends();
}

Result<const Backend*> select(const Problem& problem, std::span<const Backend* const> backends,
                              std::optional<std::string_view> forced) {
  std::vector<std::string> reasons;
  std::vector<std::string_view> names;
  bool forced_exists = false;
  for (const Backend* const backend : backends) {
    names.push_back(backend->name());
    if (forced.has_value() && *forced != backend->name()) continue;
    forced_exists = true;
    const Support support = backend->supports(problem);
    if (support) return backend;
    reasons.push_back(cat(backend->name(), ": ", support.reason()));
  }
  if (forced.has_value() && !forced_exists) {
    return Error(ErrorCode::invalid_argument, cat("no experts backend is called ", quote(*forced)),
                 "--experts-backend", cat("choose one of ", join(names)));
  }
  if (forced.has_value()) {
    return Error(ErrorCode::invalid_argument,
                 cat("the backend can't compute these experts: ", join(reasons, "; ")),
                 cat("--experts-backend, ", to_string(problem)),
                 "leave the option out, and the fastest that can is taken");
  }
  return Error(ErrorCode::unsupported,
               cat("no backend can compute these experts: ", join(reasons, "; ")),
               to_string(problem));
}

std::vector<PassedOver> passed_over(const Problem& problem, const Backend& chosen) {
  std::vector<PassedOver> all;
  for (const Backend* const faster : backends_of(problem.device)) {
    if (faster == &chosen) break;
    const Support support = faster->supports(problem);
    if (!support) all.push_back({faster->name(), support.reason()});
  }
  return all;
}

}  // namespace motley::moe
