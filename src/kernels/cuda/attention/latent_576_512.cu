#include "kernels/cuda/attention/kernel.cuh"

namespace motley::kernels::cuda::tiles {

Instances latent_576_512() {
  return {.few = {few<576, 512, 16>()}, .many = many<576, 512, false>(), .many_in_units = {}};
}

}  // namespace motley::kernels::cuda::tiles
