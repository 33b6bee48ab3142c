#include "kernels/cuda/attention/kernel.cuh"

namespace motley::kernels::cuda::tiles {

template Instance few_instance<512, 512, 16>();
template Instance many_instance<512, 512, false>();

}  // namespace motley::kernels::cuda::tiles
