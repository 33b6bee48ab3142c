#include "kernels/cuda/linear/gemv_streamed_codes.cuh"

namespace motley::kernels::cuda::streamed {
namespace {

using Wide = Fp8Format<2>;
using Fine = Fp8Format<1>;

}  // namespace

Result<void> prepare_fp8() {
  MOTLEY_TRY_VOID((prepare_codes<Wide, false>()));
  return prepare_codes<Fine, false>();
}

void launch_fp8(Launch& launch, StreamHandle stream) {
  takes_steps<Wide>(launch) ? launch_codes<Wide, false>(launch, stream)
                            : launch_codes<Fine, false>(launch, stream);
}

}  // namespace motley::kernels::cuda::streamed
