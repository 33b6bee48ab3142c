#pragma once

#include "base/system/stream_handle.h"
#include "kernels/elementary.h"

namespace motley::kernels::cuda {

// A row's result depends on that row alone. Errors are kept in the device's status (status.h).
void route(const RouteTokens& params, StreamHandle stream);
Result<void> prepare_norm_and_route();  // sets the kernel's attributes, on the current device
void norm_and_route(const NormAndRoute& params, StreamHandle stream);
bool routes_in_one_launch(const NormAndRoute& params);

// Aborts on arguments that are programming errors.
void check_routing(const RouteTokens& params);

}  // namespace motley::kernels::cuda
