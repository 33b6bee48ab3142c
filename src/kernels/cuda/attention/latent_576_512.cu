#include "kernels/cuda/attention/kernel.cuh"

namespace motley::kernels::cuda::tiles {

Instances latent_576_512() { return {{}, instance<Shape<576, 512, true>>()}; }

}  // namespace motley::kernels::cuda::tiles
