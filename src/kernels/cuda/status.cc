#include "kernels/cuda/status.h"

#include <mutex>
#include <optional>

namespace motley::kernels::cuda {
namespace {

struct Kept {
  std::mutex lock;
  std::optional<Error> error;
};

Kept& kept() {
  static Kept instance;
  return instance;
}

}  // namespace

void keep_error(const Result<void>& launched) {
  if (launched.ok()) [[likely]]
    return;
  Kept& all = kept();
  const std::lock_guard guard(all.lock);
  if (!all.error) all.error = launched.error();
}

Result<void> kept_error() {
  Kept& all = kept();
  const std::lock_guard guard(all.lock);
  if (all.error) return *all.error;
  return {};
}

}  // namespace motley::kernels::cuda
