#include "kernels/cuda/attention/kernel.cuh"

namespace motley::kernels::cuda::tiles {

Instances widths_64() {
  return {instance<Shape<64, 64, false>>(), instance<Shape<64, 64, true>>()};
}

}  // namespace motley::kernels::cuda::tiles
