#include "kernels/cuda/adapters.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/elementary.h"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/router.h"
#include "kernels/cuda/sampling.h"
#include "kernels/cuda/status.h"

namespace motley::kernels {

Result<const ElementaryTable*> cuda_table() {
  MOTLEY_TRY_VOID(cuda::open_matmul_library());
  static constexpr ElementaryTable table{
      .rms_norm = cuda::rms_norm,
      .add = cuda::add,
      .add_and_norm = cuda::add_and_norm,
      .add_scaled = cuda::add_scaled,
      .round_to = cuda::round_to,
      .rope_table = cuda::rope_table,
      .rope = cuda::rope,
      .embed = cuda::embed,
      .activate_and_multiply = cuda::activate_and_multiply,
      .linear = cuda::linear,
      .linears = cuda::linears,
      .norm_and_linears = cuda::norm_and_linears,
      .linear_transposed = cuda::linear_transposed,
      .linear_per_head = cuda::linear_per_head,
      .store_paged = cuda::store_paged,
      .gather_paged = cuda::gather_paged,
      .prepare_heads = cuda::prepare_heads,
      .prepare_latent = cuda::prepare_latent,
      .attention = cuda::attention,
      .attention_queries = cuda::attention_queries,
      .attention_scratch =
          [](const AttentionShape& shape) {
            return cuda::attention_scratch_size(shape.sequences, shape.heads, shape.kv_heads,
                                                shape.value_width);
          },
      .combine = cuda::combine,
      .log_probabilities = cuda::log_probabilities,
      .top_k = cuda::top_k,
      .route = cuda::route,
      .norm_and_route = cuda::norm_and_route,
      .sample = cuda::sample,
      .sample_scratch_bytes = cuda::sample_scratch_bytes,
      .count_tokens = cuda::count_tokens,
      .adapters = &cuda::adapter_table,
  };
  return &table;
}

Result<void> cuda_launches() { return cuda::kept_error(); }

}  // namespace motley::kernels
