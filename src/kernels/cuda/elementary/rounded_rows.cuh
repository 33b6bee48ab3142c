// The result of a norm as the products that follow take it, by the threads that have made it. The
// bits are those of arrange_inputs(), or of the codes that linear_coded() makes, behind the norm.
// Files that include this are compiled without fused multiply-add.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cuda/elementary/input_codes.cuh"
#include "kernels/cuda/elementary/norm.cuh"
#include "kernels/input_rounding.h"

namespace motley::kernels::cuda {

// A warp makes 128 numbers beside each other, which is what has a scale of its own.
inline constexpr std::int64_t rounded_block = 128;

// Of a team's row; by all threads of a block, with what each thread's own numbers have.
__device__ inline input_codes::RowTraits traits_of_team(input_codes::RowTraits own,
                                                        const NormTeam& team) {
  __shared__ float largest_of_warp[max_norm_threads / 32];
  __shared__ bool warp_has_nan[max_norm_threads / 32];
  own = {warp_max(own.largest), __any_sync(0xFFFFFFFF, own.has_nan) != 0};
  if (team.threads == 32) return own;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (threadIdx.x % 32 == 0) {
    largest_of_warp[warp] = own.largest;
    warp_has_nan[warp] = own.has_nan;
  }
  __syncthreads();
  const int warps = team.threads / 32;
  const int first = warp / warps * warps;
  for (int i = first; i < first + warps; ++i) {
    own.largest = fmaxf(own.largest, largest_of_warp[i]);
    own.has_nan = own.has_nan || warp_has_nan[i];
  }
  return own;
}

__device__ inline float largest_of(const Vec4& x) {
  float largest = 0;
#pragma unroll
  for (const float number : x.at) largest = fmaxf(largest, fabsf(number));
  return largest;
}

// A row of RoundedRows of that size.
template <InputForm form>
class RoundedRow {
 public:
  // `width` is 0 for threads that write nothing.
  __device__ RoundedRow(const RoundedRows& rows, const Rows& size, std::int64_t row,
                        std::int64_t width)
      : rounding_(rows.rounding),
        numbers_(static_cast<bf16*>(rows.data) + row * size.width),
        to_(row_codes_in(rows.data, size.rows, size.width)),
        row_(row),
        row_begin_(row * size.width),
        width_(static_cast<int>(width)) {}

  // A block's numbers in bf16, by their warp, where scales are fixed or those of blocks.
  __device__ void write_block(int at, const Vec4& x) const {
    const bool by_block = rounding_.scales == InputRounding::Scales::row_block;
    const float scale = input_scale(rounding_, by_block ? warp_max(largest_of(x)) : 0);
    if (at < width_) write_four(at, x, scale, false);
  }

  // `results` of share.run(); `again` returns one that it has not kept. By all threads of a block.
  template <bool whole, class Again>
  __device__ void write(const NormShare<whole>& share,
                        const typename NormShare<whole>::Kept& results, const Again& again) const {
    using Scales = InputRounding::Scales;
    // INT8 has no code of a NaN: all of its row's scales become one.
    const bool asks_for_nan = form == InputForm::codes && rounding_.type == DType::i8;
    input_codes::RowTraits traits{};
    if (rounding_.scales == Scales::row || asks_for_nan) {
      share.for_results(results, again, [&](int, const Vec4& x) {
        traits.largest = fmaxf(traits.largest, largest_of(x));
#pragma unroll
        for (const float number : x.at) traits.has_nan = traits.has_nan || isnan(number);
      });
      traits = traits_of_team(traits, share.team());
    }
    const bool by_block = rounding_.scales == Scales::row_block;
    const float scale_of_row = by_block ? 0 : input_scale(rounding_, traits.largest);
    share.for_results(results, again, [&](int at, const Vec4& x) {
      float scale = scale_of_row;
      if (by_block) scale = input_scale(rounding_, warp_max(largest_of(x)));
      if (at < width_) write_four(at, x, scale, asks_for_nan && traits.has_nan);
    });
  }

 private:
  __device__ void write_four(int at, const Vec4& x, float scale, bool has_nan) const {
    if constexpr (form == InputForm::numbers)
      write_numbers(at, x, scale);
    else
      write_codes(at, x, scale, has_nan);
  }
  __device__ void write_numbers(int at, Vec4 x, float scale) const {
#pragma unroll
    for (float& number : x.at) number = rounded_input(rounding_, scale, number);
    store_vec4<true>(numbers_, at, width_, x);
  }
  __device__ void write_codes(int at, const Vec4& x, float scale, bool has_nan) const {
    *reinterpret_cast<std::uint32_t*>(to_.codes + row_begin_ + at) =
        rounding_.type == DType::i8 ? input_codes::codes_of_four<DType::i8>(x.at, scale)
                                    : input_codes::codes_of_four<DType::f8_e4m3>(x.at, scale);
    if (at % rounded_block == 0)
      to_.scales[at / rounded_block * to_.pitch + row_] = has_nan ? NAN : scale;
  }

  const InputRounding& rounding_;
  bf16* numbers_;
  RowCodes to_;
  std::int64_t row_;
  std::int64_t row_begin_;
  int width_;
};

// Whether the threads that make a row know the scales of its inputs, and their places.
inline bool has_rounded_inputs(const ArrangeInputs& inputs) {
  using Scales = InputRounding::Scales;
  const InputRounding& rounding = inputs.rounding;
  if (inputs.order != nullptr || inputs.maxima.data != nullptr) return false;
  if (inputs.out_stride != inputs.width || !vec4_aligned(inputs.out, DType::bf16, inputs.width))
    return false;
  return rounding.scales == Scales::fixed || rounding.scales == Scales::row ||
         (rounding.scales == Scales::row_block && rounding.columns == rounded_block &&
          rounding.first == 0);
}

// Calls body with one of the two forms as a constant.
template <InputForm value>
struct RoundedForm {
  static constexpr InputForm form = value;
};
template <class Body>
void with_rounding(InputForm form, const Body& body) {
  if (form == InputForm::codes)
    body(RoundedForm<InputForm::codes>{});
  else
    body(RoundedForm<InputForm::numbers>{});
}

}  // namespace motley::kernels::cuda
