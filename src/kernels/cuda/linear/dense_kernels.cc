#include "kernels/cuda/linear/dense_kernels.h"

#include <array>
#include <bit>
#include <cstdint>

#include "base/cat.h"
#include "kernels/cuda/linear/library.h"

namespace motley::kernels::cuda {
namespace {

bool begins_at(const void* data, std::uintptr_t bytes) {
  return reinterpret_cast<std::uintptr_t>(data) % bytes == 0;
}

// Conditions that several kernels share.

constexpr DenseCondition not_exact = {
    [](const DenseProblem&, const Linear& l) { return !l.exact; },
    [](const DenseProblem&, const Linear&) {
      return std::string("is not exact: its sums are not in ascending k");
    }};
constexpr DenseCondition not_transposed = {
    [](const DenseProblem& p, const Linear&) { return !p.transposed; },
    [](const DenseProblem&, const Linear&) { return std::string("computes x W^T, not x W"); }};
constexpr DenseCondition bf16_rows = {
    [](const DenseProblem&, const Linear& l) { return l.x_type == DType::bf16; },
    [](const DenseProblem&, const Linear& l) {
      return cat("reads rows of bf16 only, not of ", motley::name(l.x_type));
    }};
constexpr DenseCondition bf16_weights = {
    [](const DenseProblem&, const Linear& l) { return l.w.kind == WeightKind::bf16; },
    [](const DenseProblem&, const Linear& l) {
      return cat("reads weights of bf16 only, not of ", name(l.w.kind));
    }};
// The products of a launch share x and its tiles.
constexpr DenseCondition like_the_first = {
    [](const DenseProblem& p, const Linear& l) {
      const Linear& first = p.products[0];
      return l.rows == first.rows && l.w.in == first.w.in && l.w.kind == first.w.kind &&
             l.w.block_columns == first.w.block_columns &&
             l.batch_invariant == first.batch_invariant;
    },
    [](const DenseProblem& p, const Linear& l) {
      const Linear& first = p.products[0];
      return cat("has one number of rows and inputs and one format in a launch, not ", l.rows,
                 " x ", l.w.in, " in ", name(l.w.kind), " beside ", first.rows, " x ", first.w.in,
                 " in ", name(first.w.kind));
    }};
constexpr DenseCondition vec8_rows_of_x = {
    [](const DenseProblem&, const Linear& l) {
      return l.x_stride % 8 == 0 && l.x_head_stride % 8 == 0 && begins_at(l.x, 16);
    },
    [](const DenseProblem&, const Linear& l) {
      return cat("reads 16 bytes of x at once, which rows ", l.x_stride, " numbers apart, heads ",
                 l.x_head_stride, " apart, or their address do not allow");
    }};
constexpr DenseCondition weights_at_16_bytes = {
    [](const DenseProblem&, const Linear& l) { return begins_at(l.w.data, 16); },
    [](const DenseProblem&, const Linear&) {
      return std::string("reads weights at addresses that 16 bytes divide only");
    }};
template <int unit>
constexpr DenseCondition inputs_in = {
    [](const DenseProblem&, const Linear& l) { return l.w.in > 0 && l.w.in % unit == 0; },
    [](const DenseProblem&, const Linear& l) {
      return cat("reads a number of inputs that ", unit, " divides, not ", l.w.in);
    }};

// Conditions of the bulk-copied GEMV.

constexpr DenseCondition one_head = {
    [](const DenseProblem&, const Linear& l) { return l.heads == 1; },
    [](const DenseProblem&, const Linear& l) { return cat("computes one head, not ", l.heads); }};
constexpr DenseCondition bulk_rows = {
    [](const DenseProblem&, const Linear& l) { return l.rows <= gemv_bulk_tile.rows; },
    [](const DenseProblem&, const Linear& l) {
      return cat("takes at most ", gemv_bulk_tile.rows, " rows, not ", l.rows);
    }};
// Rows of one head are contiguous: the next head follows at once.
constexpr DenseCondition vec8_rows_of_one_head = {
    [](const DenseProblem&, const Linear& l) { return l.x_stride % 8 == 0 && begins_at(l.x, 16); },
    vec8_rows_of_x.refusal};

constexpr std::array gemv_bulk_conditions = {bulk_rows,
                                             bf16_rows,
                                             bf16_weights,
                                             not_exact,
                                             not_transposed,
                                             one_head,
                                             inputs_in<gemv_bulk_step_inputs>,
                                             vec8_rows_of_one_head,
                                             weights_at_16_bytes,
                                             like_the_first};

constexpr DenseCondition code_bytes = {
    [](const DenseProblem&, const Linear& l) {
      const WeightView& w = l.w;
      return (w.kind == WeightKind::f8_e4m3 || w.kind == WeightKind::i8) && w.scales != nullptr &&
             w.zero_points == nullptr;
    },
    [](const DenseProblem&, const Linear& l) {
      return cat("reads scaled fp8 and int8 without zero points only, not ", name(l.w.kind));
    }};
constexpr DenseCondition scales_of_a_block = {
    [](const DenseProblem&, const Linear& l) {
      const std::int64_t columns = l.w.block_columns;
      const bool whole = columns >= l.w.in;
      const bool steps = columns >= gemv_bulk_step_inputs &&
                         std::has_single_bit(static_cast<std::uint64_t>(columns));
      return (whole || steps) && gemv_bulk_scales(l) <= gemv_bulk_scale_bytes;
    },
    [](const DenseProblem&, const Linear& l) {
      return cat("keeps ", gemv_bulk_scale_bytes,
                 " bytes of scales of a power of two of inputs, at least ", gemv_bulk_step_inputs,
                 ", not [", l.out, ", ", l.w.in, "] by ", l.w.block_columns);
    }};
constexpr std::array gemv_bulk_codes_conditions = {bulk_rows,
                                                   bf16_rows,
                                                   code_bytes,
                                                   not_exact,
                                                   not_transposed,
                                                   one_head,
                                                   inputs_in<gemv_bulk_step_inputs>,
                                                   scales_of_a_block,
                                                   vec8_rows_of_one_head,
                                                   weights_at_16_bytes,
                                                   like_the_first};

// Conditions of the streamed GEMVs.

constexpr std::array gemv_streamed_conditions = {bf16_weights,        bf16_rows,     not_exact,
                                                 not_transposed,      inputs_in<8>,  vec8_rows_of_x,
                                                 weights_at_16_bytes, like_the_first};

bool is_code(WeightKind kind) {
  return kind == WeightKind::int4 || kind == WeightKind::i8 || kind == WeightKind::f8_e4m3 ||
         kind == WeightKind::f4_e2m1;
}
constexpr DenseCondition code_weights = {
    [](const DenseProblem&, const Linear& l) { return is_code(l.w.kind); },
    [](const DenseProblem&, const Linear& l) {
      return cat("reads weights of int4, int8, fp8 and fp4 only, not of ", name(l.w.kind));
    }};
// Of fp4 the two formats that there are: NVFP4 and MXFP4.
bool has_code_groups(const WeightView& w) {
  if (w.kind == WeightKind::f4_e2m1)
    return w.in % 32 == 0 && w.block_rows == 1 &&
           (w.block_columns == 16 ? w.scale_type == DType::f8_e4m3
                                  : w.block_columns == 32 && w.scale_type == DType::f8_e8m0);
  return w.block_columns >= w.in ||
         (w.block_columns >= gemv_streamed_codes_group &&
          std::has_single_bit(static_cast<std::uint64_t>(w.block_columns)));
}
constexpr DenseCondition code_groups = {
    [](const DenseProblem&, const Linear& l) { return has_code_groups(l.w); },
    [](const DenseProblem&, const Linear& l) {
      return cat("reads scales of a power of two of inputs, at least ", gemv_streamed_codes_group,
                 ", or of whole rows, and MXFP4 and NVFP4, not ", name(l.w.kind),
                 " with scales of ", l.w.block_columns);
    }};
constexpr DenseCondition zeros_like_the_first = {
    [](const DenseProblem& p, const Linear& l) {
      return (l.w.zero_points == nullptr) == (p.products[0].w.zero_points == nullptr);
    },
    [](const DenseProblem&, const Linear&) {
      return std::string("has zero points for all products of a launch or for none");
    }};
constexpr std::array gemv_streamed_codes_conditions = {
    code_weights, code_groups,    bf16_rows,           not_exact,      not_transposed,
    inputs_in<8>, vec8_rows_of_x, weights_at_16_bytes, like_the_first, zeros_like_the_first};

// Conditions of latent attention's products per head.

constexpr DenseCondition narrow_weights = {
    [](const DenseProblem& p, const Linear&) {
      return p.per_head != nullptr && p.per_head->narrow.data != nullptr &&
             p.per_head->narrow.kind == WeightKind::bf16 && begins_at(p.per_head->narrow.data, 16);
    },
    [](const DenseProblem&, const Linear&) {
      return std::string(
          "computes products per head whose weights are there in bf16 too, at an address that 16 "
          "bytes divide");
    }};
constexpr DenseCondition float32_rows = {
    [](const DenseProblem&, const Linear& l) {
      return l.x_type == DType::f32 && begins_at(l.x, 16) && l.x_stride % 4 == 0 &&
             l.x_head_stride % 4 == 0;
    },
    [](const DenseProblem&, const Linear& l) {
      return cat("reads rows of f32, 16 bytes at once, not of ", motley::name(l.x_type), ", rows ",
                 l.x_stride, " and heads ", l.x_head_stride, " numbers apart");
    }};
constexpr DenseCondition latent_sizes = {
    [](const DenseProblem& p, const Linear& l) {
      return l.w.in == per_head_latent &&
             (p.transposed ? l.out == per_head_width : l.out % per_head_tile.outputs == 0);
    },
    [](const DenseProblem&, const Linear& l) {
      return cat("computes latents of ", per_head_latent, " numbers and heads of ", per_head_width,
                 " (a multiple of ", per_head_tile.outputs, " if heads come out), not ", l.w.in,
                 " and ", l.out);
    }};
constexpr DenseCondition results_in_pairs = {
    [](const DenseProblem& p, const Linear& l) {
      const LinearPerHead& h = *p.per_head;
      return h.rounded == nullptr
                 ? begins_at(l.y, 8) && l.y_stride % 2 == 0 && l.y_head_stride % 2 == 0
                 : begins_at(h.rounded, 4) && h.rounded_stride % 2 == 0 &&
                       h.rounded_head_stride % 2 == 0;
    },
    [](const DenseProblem&, const Linear&) {
      return std::string("writes two results at once, which their address or strides do not allow");
    }};
constexpr std::array per_head_conditions = {narrow_weights, not_exact, latent_sizes, float32_rows,
                                            results_in_pairs};

// Conditions of cuBLASLt.

constexpr DenseCondition rows_type_of_weights = {
    [](const DenseProblem&, const Linear& l) {
      return l.x_type == DType::bf16 ? l.w.kind == WeightKind::bf16
                                     : l.x_type == DType::f32 && l.w.kind == WeightKind::f32;
    },
    [](const DenseProblem&, const Linear& l) {
      return cat("multiplies bf16 with bf16 or f32 with f32, not ", motley::name(l.x_type),
                 " with ", name(l.w.kind));
    }};
constexpr DenseCondition any_order = {
    [](const DenseProblem&, const Linear& l) { return !l.batch_invariant; },
    [](const DenseProblem&, const Linear&) {
      return std::string("is not batch-invariant: its order of sums depends on the rows");
    }};
constexpr DenseCondition one_order = {
    [](const DenseProblem&, const Linear& l) { return l.batch_invariant; },
    [](const DenseProblem&, const Linear&) {
      return std::string("computes products that must be batch-invariant only");
    }};
constexpr DenseCondition has_algorithm = {
    [](const DenseProblem& p, const Linear& l) { return p.library->supports(l, p.transposed); },
    [](const DenseProblem&, const Linear& l) {
      return cat("cuBLASLt has no algorithm without workspace for ", l.rows, " rows and weights [",
                 l.out, ", ", l.w.in, "] at these addresses");
    }};
constexpr DenseCondition all_outputs = {
    [](const DenseProblem&, const Linear& l) {
      return l.heads == 1 && l.w_first + l.out <= l.w.out && decoded_panel_numbers / l.w.in >= 64;
    },
    [](const DenseProblem&, const Linear& l) {
      return cat("decodes panels of at least 64 rows of a weight, not of ", l.heads,
                 " heads or of rows of ", l.w.in);
    }};
// Conditions of codes times codes.

bool codes_fit(const ArrangeInputs& inputs) {
  return inputs.x_type == DType::bf16 && inputs.out_stride == inputs.width &&
         inputs.x_stride % 8 == 0 && begins_at(inputs.x, 16) && begins_at(inputs.out, 16);
}
bool has_codes_of_weights(const InputRounding& rounding, WeightKind kind) {
  using Scales = InputRounding::Scales;
  if (rounding.scales == Scales::row_block &&
      (rounding.columns != coded_tile.k || rounding.first != 0))
    return false;
  return rounding.type == DType::i8 ? kind == WeightKind::i8 && rounding.zero == 0
                                    : kind == WeightKind::f8_e4m3;
}
constexpr DenseCondition coded_inputs = {
    [](const DenseProblem& p, const Linear& l) {
      return p.inputs != nullptr && p.inputs->order == nullptr && codes_fit(*p.inputs) &&
             p.inputs->rounding == l.w.inputs && has_codes_of_weights(l.w.inputs, l.w.kind);
    },
    [](const DenseProblem&, const Linear& l) {
      return cat(
          "computes products whose inputs, in bf16, are rounded to the type of the weights' "
          "codes (fp8, or int8 without a zero point), by tensor, by row or by ",
          coded_tile.k, " inputs, not ",
          l.w.inputs.scales == InputRounding::Scales::none ? "products of inputs as they are"
                                                           : "these");
    }};
bool has_coded_scales(const WeightView& w) {
  if (w.zero_points != nullptr) return false;
  if (w.scales == nullptr) return true;
  return (w.block_columns >= w.in && (w.block_rows == 1 || w.block_rows >= w.out)) ||
         (w.block_columns == coded_tile.k && w.block_rows % coded_tile.outputs == 0);
}
constexpr DenseCondition coded_scales = {
    [](const DenseProblem&, const Linear& l) { return has_coded_scales(l.w); },
    [](const DenseProblem&, const Linear& l) {
      return cat("reads scales of rows, of all rows, or of blocks of ", coded_tile.outputs, " x ",
                 coded_tile.k, ", and no zero points, not scales of ", l.w.block_rows, " x ",
                 l.w.block_columns);
    }};
constexpr DenseCondition whole_weight = {
    [](const DenseProblem&, const Linear& l) {
      return l.heads == 1 && l.w_first == 0 && l.out == l.w.out;
    },
    [](const DenseProblem&, const Linear&) {
      return std::string("multiplies with whole weights, not with heads or parts of them");
    }};
constexpr DenseCondition coded_results = {
    [](const DenseProblem&, const Linear& l) { return begins_at(l.y, 8) && l.y_stride % 2 == 0; },
    results_in_pairs.refusal};
// Codes and scales take no more than the bf16 numbers do.
constexpr DenseCondition enough_inputs = {
    [](const DenseProblem&, const Linear& l) { return l.w.in >= coded_tile.k; },
    [](const DenseProblem&, const Linear& l) {
      return cat("reads at least ", coded_tile.k, " inputs, not ", l.w.in);
    }};

// The products up to this one, as one.
Linear together_up_to(const DenseProblem& p, const Linear& l) {
  const auto count = static_cast<std::size_t>(&l - p.products.data()) + 1;
  return decoded_together(p.products.first(count));
}
constexpr DenseCondition side_by_side = {
    [](const DenseProblem& p, const Linear& l) {
      const Linear& first = p.products[0];
      if (&l == &first) return true;
      const Linear& before = *(&l - 1);
      const Linear all = together_up_to(p, l);
      return before.y + before.out == l.y && first.y_stride == l.y_stride && first.x == l.x &&
             decoded_panel_rows(all) == all.out;
    },
    [](const DenseProblem&, const Linear&) {
      return cat("decodes the weights of a launch to one panel of ", decoded_panel_numbers,
                 " numbers, for results that stand side by side");
    }};
constexpr DenseCondition has_algorithm_for_panels = {
    [](const DenseProblem& p, const Linear& l) {
      const Linear all = together_up_to(p, l);
      const std::int64_t rows = decoded_panel_rows(all);
      const std::int64_t rest = rows > 0 ? all.out % rows : 0;
      const void* const panel = p.library->panel();
      return p.library->supports(decoded_part(all, panel, 0), false) &&
             (rest == 0 || p.library->supports(decoded_part(all, panel, all.out - rest), false));
    },
    has_algorithm.refusal};
constexpr std::array decoded_conditions = {
    code_weights, bf16_rows, not_exact,      not_transposed, inputs_in<8>,
    all_outputs,  any_order, like_the_first, side_by_side,   has_algorithm_for_panels};
constexpr std::array decoded_batch_invariant_conditions = {
    code_weights, bf16_rows,   not_exact, not_transposed,
    inputs_in<8>, all_outputs, one_order, has_algorithm_for_panels};
constexpr std::array coded_conditions = {coded_inputs,   bf16_rows,           not_exact,
                                         not_transposed, any_order,           whole_weight,
                                         coded_scales,   inputs_in<16>,       enough_inputs,
                                         coded_results,  weights_at_16_bytes, like_the_first};
// The last condition may search for an algorithm.
constexpr std::array cublaslt_conditions = {not_exact, rows_type_of_weights, any_order,
                                            has_algorithm};
constexpr std::array cublaslt_batch_invariant_conditions = {not_exact, rows_type_of_weights,
                                                            one_order, has_algorithm};

void run_library(const DenseProblem& p, const Ahead&, StreamHandle stream) {
  p.library->multiply(p.products[0], p.transposed, stream);
}
void run_coded(const DenseProblem& p, const Ahead&, StreamHandle stream) {
  if (!p.coded) code_inputs(*p.inputs, stream);
  linear_coded(p.products, *p.inputs, stream);
}
void run_decoded(const DenseProblem& p, const Ahead&, StreamHandle stream) {
  linear_decoded(p.products, *p.library, stream);
}

}  // namespace

constinit const DenseKernel gemv_bulk_kernel = {
    .info = {.name = "gemv_bulk",
             .architecture = Architecture::sm_90a,
             .arithmetic = {"gemv_bulk: by inputs alone"},
             .tile = gemv_bulk_tile},
    .max_products = gemv_bulk_max_products,
    .batch_invariant = true,
    .conditions = gemv_bulk_conditions,
    .prepare = prepare_gemv_bulk,
    .run = [](const DenseProblem& p, const Ahead& ahead, StreamHandle stream) {
      gemv_bulk(p.products, ahead, stream);
    }};

constinit const DenseKernel gemv_bulk_codes_kernel = {
    .info = {.name = "gemv_bulk_codes",
             .architecture = Architecture::sm_90a,
             .arithmetic = {"gemv_bulk_codes: by inputs alone, scales on sums of 32"},
             .tile = gemv_bulk_tile},
    .max_products = gemv_bulk_max_products,
    .batch_invariant = true,
    .conditions = gemv_bulk_codes_conditions,
    .prepare = prepare_gemv_bulk_codes,
    .run = [](const DenseProblem& p, const Ahead& ahead, StreamHandle stream) {
      gemv_bulk_codes(p.products, ahead, stream);
    }};

constinit const DenseKernel gemv_streamed_kernel = {
    .info = {.name = "gemv_streamed",
             .architecture = Architecture::sm_90a,
             .arithmetic = {"gemv_streamed: by the weights' shapes"},
             .tile = gemv_streamed_tile},
    .max_products = gemv_streamed_max_products,
    .batch_invariant = true,
    .conditions = gemv_streamed_conditions,
    .prepare = prepare_gemv_streamed,
    .run = [](const DenseProblem& p, const Ahead&, StreamHandle stream) {
      gemv_streamed(p.products, stream);
    }};

constinit const DenseKernel gemv_streamed_codes_kernel = {
    .info =
        {.name = "gemv_streamed_codes",
         .architecture = Architecture::sm_90a,
         .arithmetic = {"gemv_streamed_codes: by the weights' shapes, scales on sums of groups"},
         .tile = gemv_streamed_codes_tile},
    .max_products = gemv_streamed_max_products,
    .batch_invariant = true,
    .conditions = gemv_streamed_codes_conditions,
    .prepare = prepare_gemv_streamed_codes,
    .run = [](const DenseProblem& p, const Ahead&, StreamHandle stream) {
      gemv_streamed_codes(p.products, stream);
    }};

constinit const DenseKernel per_head_kernel = {
    .info = {.name = "per_head",
             .architecture = Architecture::sm_90a,
             .arithmetic = {"per_head: f32 rows as two bf16, by the weights' shape"},
             .tile = per_head_tile},
    .batch_invariant = true,
    .rounds = true,
    .conditions = per_head_conditions,
    .run = [](const DenseProblem& p, const Ahead&, StreamHandle stream) {
      per_head_product(*p.per_head, stream);
    }};

constinit const DenseKernel cublaslt_kernel = {
    .info = {.name = "cublaslt", .arithmetic = {"cublaslt: by rows and shape"}},
    .conditions = cublaslt_conditions,
    .run = run_library};

constinit const DenseKernel cublaslt_batch_invariant_kernel = {
    .info = {.name = "cublaslt_batch_invariant",
             .arithmetic = {"cublaslt: its algorithm for 64 rows"}},
    .batch_invariant = true,
    .conditions = cublaslt_batch_invariant_conditions,
    .run = run_library};

constinit const DenseKernel coded_kernel = {
    .info = {.name = "coded",
             .architecture = Architecture::sm_90a,
             .arithmetic = {"coded: k ascending, scales on sums of 128"},
             .tile = coded_tile},
    .max_products = coded_max_products,
    .batch_invariant = true,
    .codes_inputs = true,
    .conditions = coded_conditions,
    .prepare = prepare_coded,
    .run = run_coded};

constinit const DenseKernel decoded_kernel = {
    .info = {.name = "decoded", .arithmetic = {"cublaslt over panels: by rows and shape"}},
    .max_products = decoded_max_products,
    .conditions = decoded_conditions,
    .run = run_decoded};

constinit const DenseKernel decoded_batch_invariant_kernel = {
    .info = {.name = "decoded_batch_invariant",
             .arithmetic = {"cublaslt over panels: its algorithm for 64 rows"}},
    .batch_invariant = true,
    .conditions = decoded_batch_invariant_conditions,
    .run = run_decoded};

constinit const DenseKernel exact_kernel = {
    .info = {.name = "exact", .arithmetic = {"f32, k ascending, fused"}, .tile = exact_tile},
    .batch_invariant = true,
    .run = [](const DenseProblem& p, const Ahead&, StreamHandle stream) {
      (p.transposed ? linear_transposed_exact : linear_exact)(p.products[0], stream);
    }};

bool DenseKernel::can(const DenseProblem& problem, const Linear& product) const {
  for (const DenseCondition& condition : conditions)
    if (!condition.holds(problem, product)) return false;
  return true;
}

Support DenseKernel::supports(const DenseProblem& problem) const {
  if (problem.products.size() > max_products)
    return Support::no(cat("takes at most ", max_products, " products in a launch, not ",
                           problem.products.size()));
  for (const Linear& product : problem.products)
    for (const DenseCondition& condition : conditions)
      if (!condition.holds(problem, product))
        return Support::no(condition.refusal(problem, product));
  return Support::yes();
}

std::span<const DenseKernel* const> all_dense_kernels() {
  static constexpr std::array kernels = {&gemv_bulk_kernel,
                                         &gemv_bulk_codes_kernel,
                                         &gemv_streamed_kernel,
                                         &gemv_streamed_codes_kernel,
                                         &per_head_kernel,
                                         &cublaslt_kernel,
                                         &cublaslt_batch_invariant_kernel,
                                         &coded_kernel,
                                         &decoded_kernel,
                                         &decoded_batch_invariant_kernel,
                                         &exact_kernel};
  return kernels;
}

Result<void> prepare_dense() {
  for (const DenseKernel* kernel : all_dense_kernels())
    if (kernel->prepare != nullptr) MOTLEY_TRY_VOID(kernel->prepare());
  return {};
}

}  // namespace motley::kernels::cuda
