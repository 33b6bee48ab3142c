#include "kernels/cuda/adapters/adapters.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/elementary/arrange_inputs.h"
#include "kernels/cuda/elementary/elementary.h"
#include "kernels/cuda/elementary/router.h"
#include "kernels/cuda/primitives/device.h"
#include "kernels/cuda/recurrence/recurrence.h"
#include "kernels/cuda/sampling/sampling.h"

namespace motley::kernels {

namespace {

constexpr ElementaryTable functions{
    .rms_norm = cuda::rms_norm,
    .add = cuda::add,
    .add_and_norm = cuda::add_and_norm,
    .add_scaled = cuda::add_scaled,
    .round_to = cuda::round_to,
    .rope_table = cuda::rope_table,
    .embed = cuda::embed,
    .activate_and_multiply = cuda::activate_and_multiply,
    .linear = cuda::linear,
    .linears = cuda::linears,
    .linear_per_head = cuda::linear_per_head,
    .gather_paged = cuda::gather_paged,
    .prepare_heads = cuda::prepare_heads,
    .prepare_latent = cuda::prepare_latent,
    .attention = cuda::attention,
    .attention_queries = cuda::attention_queries,
    .attention_scratch = cuda::attention_scratch,
    .combine = cuda::combine,
    .log_probabilities = cuda::log_probabilities,
    .top_k = cuda::top_k,
    .route = cuda::route,
    .norm_and_route = cuda::norm_and_route,
    .routes_in_one_launch = cuda::routes_in_one_launch,
    .sample = cuda::sample,
    .sample_scratch_bytes = cuda::sample_scratch_bytes,
    .count_tokens = cuda::count_tokens,
    .input_maxima = cuda::input_maxima,
    .adapters = &cuda::adapter_table,
    .recurrence = &cuda::recurrence_table,
    .arrange_inputs = cuda::arrange_inputs,
    .norm_inputs = cuda::norm_inputs,
    .activation_inputs = cuda::activation_inputs,
    .takes_norm_of_parts = cuda::takes_norm_of_parts,
    .activate_blocks = cuda::activate_blocks,
    .takes_shared = cuda::takes_shared,
    .add_shared_and_norm = cuda::add_shared_and_norm,
};

struct OpenDevice {
  std::unique_ptr<cuda::Device> device;
  ElementaryTable table;
};

}  // namespace

Result<std::shared_ptr<const ElementaryTable>> cuda_table(int device, const Tuning* tuning) {
  const auto made = std::make_shared<OpenDevice>(OpenDevice{.device = nullptr, .table = functions});
  MOTLEY_TRY(made->device, cuda::Device::open(device, tuning));
  made->table.device = made->device.get();
  return std::shared_ptr<const ElementaryTable>(made, &made->table);
}

Result<void> cuda_launches(const ElementaryTable& table) {
  if (table.device == nullptr) return {};  // the CPU's
  return static_cast<const cuda::Device*>(table.device)->first_error();
}

void log_cuda_launches(const ElementaryTable& table, std::vector<std::string>* log) {
  if (table.device != nullptr) static_cast<cuda::Device*>(table.device)->log_launches(log);
}

}  // namespace motley::kernels
