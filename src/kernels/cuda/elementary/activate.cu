#include "base/check.h"
#include "kernels/cuda/elementary/elementary.h"
#include "kernels/cuda/elementary/norm.cuh"
#include "kernels/cuda/elementary/rounded_rows.cuh"
#include "kernels/cuda/linear/linear.h"
#include "kernels/cuda/primitives/exponential.cuh"
#include "kernels/cuda/primitives/vec4.cuh"

// Products of an activated gate and another number, with the CPU's operations in the CPU's order.
namespace motley::kernels::cuda {
namespace {

__device__ float activated(const ActivateAndMultiply& p, float gate, float up) {
  if (p.activation == Activation::silu) return gate * sigmoid(gate) * up;
  gate = gate > p.limit ? p.limit : gate;
  up = up > p.limit ? p.limit : up;
  up = up < -p.limit ? -p.limit : up;
  return gate * sigmoid(gate * p.alpha) * (up + 1.0F);
}
__device__ Vec4 activated(const ActivateAndMultiply& p, const Vec4& gate, const Vec4& up) {
  Vec4 out;
#pragma unroll
  for (int i = 0; i < 4; ++i) out.at[i] = activated(p, gate.at[i], up.at[i]);
  return out;
}

template <class X, class Out, bool whole>
struct ActivateVec4 {
  ActivateAndMultiply p;
  __device__ void operator()(std::int64_t row, std::int64_t at) const {
    const Vec4 gate =
        load_vec4<whole>(static_cast<const X*>(p.gate) + row * p.gate_stride, at, p.width);
    const Vec4 up = load_vec4<whole>(static_cast<const X*>(p.up) + row * p.up_stride, at, p.width);
    store_vec4<whole>(static_cast<Out*>(p.out) + row * p.out_stride, at, p.width,
                      activated(p, gate, up));
  }
};

bool activates_vec4s(const ActivateAndMultiply& p) {
  return p.width % 4 == 0 && vec4_aligned(p.gate, p.type, p.gate_stride) &&
         vec4_aligned(p.up, p.type, p.up_stride) && vec4_aligned(p.out, p.out_type, p.out_stride);
}

// ---- with a norm before it, or rounded for the products after it ----

constexpr int block_width = static_cast<int>(rounded_block);  // of a warp: a part, or a scale's
constexpr int block_threads = 128;

// A warp has a block of a row.
template <InputForm form>
__global__ void __launch_bounds__(block_threads)
    activate_in_blocks(const __grid_constant__ ActivateAndMultiply p, int blocks) {
  launch_dependents();
  const std::int64_t index = std::int64_t{blockIdx.x} * (block_threads / 32) + threadIdx.x / 32;
  const std::int64_t row = index / blocks;
  const int first = static_cast<int>(index % blocks) * block_width;
  const int in_part = static_cast<int>(threadIdx.x) % 32 * 4;
  const int at = first + in_part;
  const bool mine = row < p.rows && at < p.width;
  Vec4 weight{};
  if (p.norm.weight != nullptr) weight = load_vec4<true>(p.norm.weight, in_part, block_width);
  wait_for_previous_grid();
  Vec4 gate{};
  Vec4 up{};
  if (mine) {
    gate = load_vec4<true>(static_cast<const float*>(p.gate) + row * p.gate_stride, at, p.width);
    up = load_vec4<true>(static_cast<const float*>(p.up) + row * p.up_stride, at, p.width);
  }
  if (p.norm.weight != nullptr) {
    Squares squares;
    squares.add(up);
    const float factor = Squares::factor_of(squares.of_warp(), block_width, p.norm.eps);
    up = normed<float>(up, weight, factor, true);
  }
  Vec4 out = activated(p, gate, up);
#pragma unroll
  for (float& number : out.at) number = mine ? widen(narrow<bf16>(number)) : 0.0F;
  if (mine) store_vec4<true>(static_cast<bf16*>(p.out) + row * p.out_stride, at, p.width, out);
  if constexpr (form != InputForm::none)
    RoundedRow<form>(p.rounded, {.rows = p.rows, .width = p.width}, row, mine ? p.width : 0)
        .write_block(at, out);
}

bool activates_blocks(const ActivateAndMultiply& p) {
  return p.type == DType::f32 && p.out_type == DType::bf16 && activates_vec4s(p);
}

}  // namespace

void activate_and_multiply(const ActivateAndMultiply& p, StreamHandle stream) {
  MOTLEY_CHECK(p.norm.weight == nullptr && p.rounded.form == InputForm::none,
               "an activation by itself");
  with_type(p.type, [&](auto x) {
    with_type(p.out_type, [&](auto out) {
      with_flag(activates_vec4s(p), [&](auto flag) {
        for_each_vec4("activate_and_multiply", p.rows, p.width, stream,
                      ActivateVec4<decltype(x), decltype(out), flag.value>{p});
      });
    });
  });
}

bool takes_norm_of_parts(const ActivateAndMultiply& p) {
  return activates_blocks(p) && p.norm.width == block_width && p.width % block_width == 0 &&
         vec4_aligned(p.norm.weight, DType::f32, 0);
}

// Scales that a block of numbers knows. INT8 has no code of a NaN: its row would have to know.
InputForm activation_inputs(const ActivateAndMultiply& p, const Linears& products,
                            StreamHandle stream) {
  using Scales = InputRounding::Scales;
  const ArrangeInputs& inputs = *products.inputs;
  const bool scales_fit =
      inputs.rounding.scales == Scales::fixed || inputs.rounding.scales == Scales::row_block;
  if (!activates_blocks(p) || !scales_fit || !has_rounded_inputs(inputs)) return InputForm::none;
  const bool codes = takes_codes(products, stream);
  if (codes && inputs.rounding.type == DType::i8) return InputForm::none;
  return codes ? InputForm::codes : InputForm::numbers;
}

void activate_blocks(const ActivateAndMultiply& p, StreamHandle stream) {
  MOTLEY_CHECK(activates_blocks(p) && (p.norm.weight == nullptr || takes_norm_of_parts(p)),
               "blocks of numbers that a warp activates");
  if (p.rows <= 0 || p.width <= 0) return;
  const std::int64_t blocks = (p.width + block_width - 1) / block_width;
  constexpr int warps = block_threads / 32;
  const LaunchShape shape{.grid = static_cast<unsigned>((p.rows * blocks + warps - 1) / warps),
                          .threads = block_threads};
  const auto run = [&](auto* kernel) {
    launch("activate_blocks", kernel, shape, stream, p, static_cast<int>(blocks));
  };
  if (p.rounded.form == InputForm::none) return run(activate_in_blocks<InputForm::none>);
  with_rounding(p.rounded.form, [&](auto to) { run(activate_in_blocks<to.form>); });
}

}  // namespace motley::kernels::cuda
