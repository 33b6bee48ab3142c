#include "kernels/cuda/experts/grouped/kernels.cuh"

namespace motley::kernels::cuda::grouped {

template std::span<const GroupedKernel> kernels_of<ExpertFormat::fp8_fine, false>();
template std::span<const GroupedKernel> kernels_of<ExpertFormat::fp8_fine, true>();

}  // namespace motley::kernels::cuda::grouped
