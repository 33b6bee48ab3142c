#include "kernels/cuda/attention/kernel.cuh"

namespace motley::kernels::cuda::tiles {

Instances widths_192_128() {
  return {instance<Shape<192, 128, false>>(), instance<Shape<192, 128, true>>()};
}

}  // namespace motley::kernels::cuda::tiles
