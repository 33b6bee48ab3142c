#pragma once

#include "base/stream_handle.h"
#include "kernels/elementary.h"

namespace motley::kernels::cuda {

// A row's result depends on that row alone. Errors are kept (status.h).
void route(const RouteTokens& params, StreamHandle stream);

}  // namespace motley::kernels::cuda
