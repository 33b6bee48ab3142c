#pragma once

#include <memory>

#include "kernels/elementary.h"

// The kernels of the first GPU, which this program's tests share.
namespace motley::gpu_tests {

inline const kernels::ElementaryTable& device_table() {
  static const std::shared_ptr<const kernels::ElementaryTable> table =
      kernels::cuda_table(0).value();
  return *table;
}

// The default stream, as they take it.
inline StreamHandle default_stream() { return device_table().on({}); }

// The first launch that failed, if any.
inline Result<void> launches() { return kernels::cuda_launches(device_table()); }

}  // namespace motley::gpu_tests
