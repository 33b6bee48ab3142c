// Launches of the entries that return nothing.
#pragma once

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/status.h"

namespace motley::kernels::cuda {

template <class... Parameters, class... Arguments>
void queue(std::string_view name, void (*kernel)(Parameters...), const LaunchShape& shape,
           StreamHandle stream, const Arguments&... arguments) {
  keep_error(launch(name, kernel, shape, stream, arguments...));
}

}  // namespace motley::kernels::cuda
