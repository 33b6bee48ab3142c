#include "base/check.h"
#include "kernels/cuda/elementary/elementary.h"
#include "kernels/cuda/elementary/norm.cuh"
#include "kernels/cuda/elementary/rounded_rows.cuh"
#include "kernels/cuda/linear/linear.h"
#include "kernels/cuda/primitives/code_warm_up.cuh"
#include "kernels/cuda/primitives/exponential.cuh"
#include "kernels/cuda/primitives/vec4.cuh"

namespace motley::kernels::cuda {
namespace {

template <class X, class Out, bool whole, InputForm form>
__global__ void __launch_bounds__(max_norm_threads) norm(RmsNorm p, NormTeam team) {
  __shared__ float warp_sums[max_norm_threads / 32];
  launch_dependents();
  const int thread = static_cast<int>(threadIdx.x) % team.threads;
  const std::int64_t index =
      std::int64_t{blockIdx.x} * team.parts + static_cast<int>(threadIdx.x) / team.threads;
  // Teams without a part still take part in the barrier.
  const bool mine = index < p.size.rows * p.size.parts;
  const std::int64_t row = mine ? index / p.size.parts : 0;
  const std::int64_t part = mine ? index % p.size.parts : 0;
  const std::int64_t width = mine ? p.size.width : 0;
  const X* const x = static_cast<const X*>(p.x) + row * p.x_stride + part * p.x_part_stride;
  Out* const out = static_cast<Out*>(p.out) + row * p.out_stride + part * p.out_part_stride;
  NormShare<whole> share(p.weight, width, team, thread);
  wait_for_previous_grid();
  const auto read = [&](std::int64_t at) { return load_vec4<whole>(x, at, width); };
  const auto results = share.template run<Out>(
      {p.size.width, p.eps, p.weight_in_f32}, warp_sums, read, [](std::int64_t, const Vec4&) {},
      read, [&](std::int64_t at, const Vec4& vec4) { store_vec4<whole>(out, at, width, vec4); });
  if constexpr (form != InputForm::none)
    RoundedRow<form>(p.rounded, p.size, row, width).write(share, results, [&](std::int64_t at) {
      return load_vec4<whole>(out, at, width);
    });
}

constexpr std::int64_t max_warm_up_rows = 16;

// Rows that the second addend gets first, each times a number; x null: none.
struct SharedRow {
  const float* x = nullptr;
  float scale = 1;

  __device__ SharedRow(const AddScaled& p, std::int64_t row) {
    if (p.x == nullptr || row >= p.rows) return;
    x = static_cast<const float*>(p.x) + row * p.x_stride;
    if (p.scale != nullptr) scale = p.scale[row * p.scale_stride];
    if (p.sigmoid) scale = sigmoid(scale);
  }
};

// One team per row. A thread reads back only what it has written itself. `shares`: the second
// addend gets rows first.
template <class A, class B, class X, class Out, bool whole, InputForm form, bool shares>
__global__ void __launch_bounds__(max_norm_threads, form == InputForm::codes ? 2 : 1)
    sum_and_norm(const __grid_constant__ AfterExperts after, NormTeam team) {
  const AddAndNorm& p = after.rows;
  __shared__ float warp_sums[max_norm_threads / 32];
  launch_dependents();
  const int thread = static_cast<int>(threadIdx.x) % team.threads;
  const std::int64_t row =
      std::int64_t{blockIdx.x} * team.parts + static_cast<int>(threadIdx.x) / team.threads;
  const std::int64_t width = row < p.add.rows ? p.add.width : 0;
  const A* const a = static_cast<const A*>(p.add.a) + row * p.add.a_stride;
  const B* const b = static_cast<const B*>(p.add.b) + row * p.add.b_stride;
  X* const x = static_cast<X*>(p.add.out) + row * p.add.out_stride;
  Out* const out = static_cast<Out*>(p.norm.out) + row * p.norm.out_stride;
  NormShare<whole> share(p.norm.weight, width, team, thread);
  constexpr bool many_rows = form == InputForm::codes;
#pragma unroll 1
  for (int pass = first_pass(!many_rows && p.add.rows <= max_warm_up_rows); pass < passes; ++pass) {
    const bool keeps = many_rows || counts(pass);
    Addends<A, B> addends{.a = keeps ? a : reinterpret_cast<const A*>(p.norm.weight),
                          .b = keeps ? b : reinterpret_cast<const B*>(p.norm.weight),
                          .b_bias = p.add.b_bias};
    if (keeps) {
      wait_for_previous_grid();
      if constexpr (shares) {
        const SharedRow shared(after.shared, row);
        addends.shared = shared.x;
        addends.share = shared.scale;
      }
    }
    const auto results = share.template run<Out>(
        {p.add.width, p.norm.eps, p.norm.weight_in_f32}, warp_sums,
        [&](std::int64_t at) { return addends.template sum<X, whole>(at, width); },
        [&](std::int64_t at, const Vec4& vec4) {
          if (keeps) store_vec4<whole>(x, at, width, vec4);
        },
        [&](std::int64_t at) { return keeps ? load_vec4<whole>(x, at, width) : Vec4{}; },
        [&](std::int64_t at, const Vec4& vec4) {
          if (keeps) store_vec4<whole>(out, at, width, vec4);
        });
    if constexpr (form != InputForm::none)
      RoundedRow<form>(p.norm.rounded, p.norm.size, row, keeps ? width : 0)
          .write(share, results, [&](std::int64_t at) {
            return keeps ? load_vec4<whole>(out, at, width) : Vec4{};
          });
    __syncthreads();
  }
}

bool norm_in_vec4(const RmsNorm& p) {
  return p.size.width % 4 == 0 && vec4_aligned(p.x, p.x_type, p.x_stride) &&
         p.x_part_stride % 4 == 0 && vec4_aligned(p.weight, DType::f32, 0) &&
         vec4_aligned(p.out, p.out_type, p.out_stride) && p.out_part_stride % 4 == 0;
}

LaunchShape shape_of(const NormTeam& team, std::int64_t parts) {
  return {.grid = static_cast<unsigned>((parts + team.parts - 1) / team.parts),
          .threads = static_cast<unsigned>(team.threads * team.parts)};
}

// Whether the norm's result can be rounded beside it.
bool is_rounded_there(const RmsNorm& p) {
  return p.x_type == DType::f32 && p.out_type == DType::bf16 && p.size.parts == 1 &&
         norm_in_vec4(p);
}

bool sum_in_vec4(const AddAndNorm& p) {
  return norm_in_vec4(p.norm) && vec4_aligned(p.add.a, p.add.a_type, p.add.a_stride) &&
         vec4_aligned(p.add.b, p.add.b_type, p.add.b_stride) &&
         vec4_aligned(p.add.b_bias, DType::f32, 0);
}
bool is_rounded_there(const AddAndNorm& p) {
  return norm_takes_vec4(p) && is_rounded_there(p.norm);
}

void check_sum(const AddAndNorm& p) {
  MOTLEY_CHECK(p.norm.x == p.add.out && p.norm.x_type == p.add.out_type &&
                   p.norm.x_stride == p.add.out_stride && p.norm.size.parts == 1 &&
                   p.norm.size.rows == p.add.rows && p.norm.size.width == p.add.width,
               "the norm of the sum");
}

// Of rows in whole vec4s.
template <bool shares>
void launch_whole(const AfterExperts& p, StreamHandle stream) {
  const NormTeam team = norm_team(p.rows.add.width);
  const auto run = [&](auto* kernel) {
    launch("add_and_norm", kernel, shape_of(team, p.rows.add.rows), stream, p, team);
  };
  const InputForm form = p.rows.norm.rounded.form;
  if (form == InputForm::none)
    return run(sum_and_norm<float, float, float, bf16, true, InputForm::none, shares>);
  MOTLEY_CHECK(is_rounded_there(p.rows), "a norm that rounds its result");
  with_rounding(
      form, [&](auto to) { run(sum_and_norm<float, float, float, bf16, true, to.form, shares>); });
}

}  // namespace

InputForm norm_inputs(const AddAndNorm& p, const Linears& products, StreamHandle stream) {
  const bool fits = p.add.out != nullptr ? is_rounded_there(p) : is_rounded_there(p.norm);
  if (!fits || !has_rounded_inputs(*products.inputs)) return InputForm::none;
  return takes_codes(products, stream) ? InputForm::codes : InputForm::numbers;
}

void rms_norm(const RmsNorm& p, StreamHandle stream) {
  const std::int64_t parts = p.size.rows * p.size.parts;
  if (parts <= 0 || p.size.width <= 0) return;
  const NormTeam team = norm_team(p.size.width);
  if (p.rounded.form != InputForm::none) {
    MOTLEY_CHECK(is_rounded_there(p), "a norm that rounds its result");
    return with_rounding(p.rounded.form, [&](auto to) {
      launch("rms_norm", norm<float, bf16, true, to.form>, shape_of(team, parts), stream, p, team);
    });
  }
  with_type(p.x_type, [&](auto x) {
    with_type(p.out_type, [&](auto out) {
      with_flag(norm_in_vec4(p), [&](auto flag) {
        launch("rms_norm", norm<decltype(x), decltype(out), flag.value, InputForm::none>,
               shape_of(team, parts), stream, p, team);
      });
    });
  });
}

void add_and_norm(const AddAndNorm& p, StreamHandle stream) {
  check_sum(p);
  if (p.add.rows <= 0 || p.add.width <= 0) return;
  if (p.norm.rounded.form != InputForm::none)
    return launch_whole<false>({.shared = {}, .rows = p}, stream);
  const NormTeam team = norm_team(p.add.width);
  with_type(p.add.a_type, [&](auto a) {
    with_type(p.add.b_type, [&](auto b) {
      with_type(p.add.out_type, [&](auto x) {
        with_type(p.norm.out_type, [&](auto out) {
          with_flag(sum_in_vec4(p), [&](auto flag) {
            launch("add_and_norm",
                   sum_and_norm<decltype(a), decltype(b), decltype(x), decltype(out), flag.value,
                                InputForm::none, false>,
                   shape_of(team, p.add.rows), stream, AfterExperts{.shared = {}, .rows = p}, team);
          });
        });
      });
    });
  });
}

bool takes_shared(const AfterExperts& p) {
  return p.rows.add.b_bias == nullptr && norm_takes_vec4(p.rows) && p.shared.x_type == DType::f32 &&
         vec4_aligned(p.shared.x, DType::f32, p.shared.x_stride);
}

void add_shared_and_norm(const AfterExperts& p, StreamHandle stream) {
  check_sum(p.rows);
  MOTLEY_CHECK(takes_shared(p), "rows of whole vec4s");
  if (p.rows.add.rows <= 0 || p.rows.add.width <= 0) return;
  launch_whole<true>(p, stream);
}

}  // namespace motley::kernels::cuda
