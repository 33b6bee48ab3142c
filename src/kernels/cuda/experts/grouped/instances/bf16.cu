#include "kernels/cuda/experts/grouped/kernels.cuh"

namespace motley::kernels::cuda::grouped {

template std::span<const GroupedKernel> kernels_of<ExpertFormat::bf16, false>();
template std::span<const GroupedKernel> kernels_of<ExpertFormat::bf16, true>();

}  // namespace motley::kernels::cuda::grouped
