#include "kernels/cuda/attention/kernel.cuh"

namespace motley::kernels::cuda::tiles {

Instances widths_128() {
  return {instance<Shape<128, 128, false>>(), instance<Shape<128, 128, true>>()};
}

}  // namespace motley::kernels::cuda::tiles
