#include "kernels/cuda/linear/gemv_streamed.cuh"
#include "kernels/cuda/linear/gemv_streamed_codes.h"

namespace motley::kernels::cuda {

Result<void> prepare_gemv_streamed_codes() {
  MOTLEY_TRY_VOID(streamed::prepare_int4());
  MOTLEY_TRY_VOID(streamed::prepare_int8());
  MOTLEY_TRY_VOID(streamed::prepare_fp8());
  return streamed::prepare_fp4();
}

void gemv_streamed_codes(std::span<const Linear> products, StreamHandle stream) {
  streamed::Launch launch = streamed::make_launch(products);
  if (launch.count == 0) return;
  streamed::share_out_k(launch);
  switch (launch.parts[0].p.w.kind) {
    case WeightKind::int4:
      return streamed::launch_int4(launch, stream);
    case WeightKind::i8:
      return streamed::launch_int8(launch, stream);
    case WeightKind::f8_e4m3:
      return streamed::launch_fp8(launch, stream);
    case WeightKind::f4_e2m1:
      return streamed::launch_fp4(launch, stream);
    default:
      break;  // refused by the kernel's conditions
  }
}

}  // namespace motley::kernels::cuda
