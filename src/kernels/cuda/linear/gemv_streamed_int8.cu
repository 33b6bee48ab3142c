#include "kernels/cuda/linear/gemv_streamed_codes.cuh"

namespace motley::kernels::cuda::streamed {
namespace {

using Wide = Int8Format<2>;
using Fine = Int8Format<1>;

template <bool zeros>
void launch_steps(Launch& launch, StreamHandle stream) {
  takes_steps<Wide>(launch) ? launch_codes<Wide, zeros>(launch, stream)
                            : launch_codes<Fine, zeros>(launch, stream);
}

}  // namespace

Result<void> prepare_int8() {
  MOTLEY_TRY_VOID((prepare_codes<Wide, false>()));
  MOTLEY_TRY_VOID((prepare_codes<Wide, true>()));
  MOTLEY_TRY_VOID((prepare_codes<Fine, false>()));
  return prepare_codes<Fine, true>();
}

void launch_int8(Launch& launch, StreamHandle stream) {
  launch.parts[0].p.w.zero_points != nullptr ? launch_steps<true>(launch, stream)
                                             : launch_steps<false>(launch, stream);
}

}  // namespace motley::kernels::cuda::streamed
