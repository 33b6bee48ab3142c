#pragma once

#include "base/system/stream_handle.h"
#include "kernels/elementary.h"

namespace motley::kernels::cpu {

void input_maxima(const FindInputMaxima& params, StreamHandle stream);

}  // namespace motley::kernels::cpu
