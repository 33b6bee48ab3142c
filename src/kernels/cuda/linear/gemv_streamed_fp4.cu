#include "kernels/cuda/linear/gemv_streamed_codes.cuh"

namespace motley::kernels::cuda::streamed {
namespace {

using Mx = Fp4Format<32>;
using Nv = Fp4Format<16>;

}  // namespace

Result<void> prepare_fp4() {
  MOTLEY_TRY_VOID((prepare_codes<Mx, false>()));
  return prepare_codes<Nv, false>();
}

void launch_fp4(Launch& launch, StreamHandle stream) {
  launch.parts[0].p.w.block_columns == Mx::group ? launch_codes<Mx, false>(launch, stream)
                                                 : launch_codes<Nv, false>(launch, stream);
}

}  // namespace motley::kernels::cuda::streamed
