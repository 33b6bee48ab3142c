#pragma once

#include "kernels/elementary.h"

namespace motley::kernels::cpu {

void route(const RouteTokens& params, StreamHandle stream);

}  // namespace motley::kernels::cpu
