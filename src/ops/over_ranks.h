#pragma once

#include <cstdint>

#include "dist/communicator.h"
#include "ops/context.h"
#include "ops/norm.h"
#include "quant/cut_scales.h"
#include "tensor/tensor.h"

// What ranks compute together, each from its part. Needs Context::ranks. An error is the group's
// (Communicator::status): results are then undefined, and the step asks for it.
namespace motley::ops {

// Replaces x, contiguous rows in f32, by its sum over ranks. Between GPUs parts cross in bf16,
// unless products are exact or the sum is to be.
struct SumOverRanks {
  dist::Communicator::Part part = dist::Communicator::Part::own;
  bool exact = false;  // as all ranks have it
};
void sum_over_ranks(const Context& context, const tensor::Tensor& x, const SumOverRanks& sum);

// Replaces x, contiguous rows in f32 of which none is negative, by its maxima over ranks.
void max_over_ranks(const Context& context, const tensor::Tensor& x,
                    dist::Communicator::Part part = dist::Communicator::Part::own);

// out [R, scales.count] = the largest magnitudes of the inputs that share a scale, of rows of which
// every rank has some columns: x are this rank's, null where it has none.
struct CutRounding {
  kernels::InputRounding rounding{};
  quant::CutScales scales{};
};
void input_maxima_over_ranks(const Context& context, const tensor::ConstTensor* x,
                             const CutRounding& cut, const tensor::Tensor& out);

// The same sum of rows.add.b, which is then undefined, and kernels.add_and_norm of the rows, in one
// launch. For rows that fit.
bool fits_sum_and_norm(const Context& context, const kernels::AddAndNorm& rows);
void sum_and_norm_over_ranks(const Context& context, const kernels::AddAndNorm& rows,
                             dist::Communicator::Part part);

// Norms rows of which every rank has some columns: x and weight are this rank's, in f32, in place.
struct CutNorm {
  RmsNormOptions options{};
  std::int64_t whole_width = 0;
  // A rank whose columns another rank has, too, adds nothing to the sum of squares.
  dist::Communicator::Part part = dist::Communicator::Part::own;
};
void rms_norm_over_ranks(const Context& context, const tensor::ConstTensor& weight,
                         const CutNorm& norm, const tensor::Tensor& x);

// Rank 0 gets all columns of rows [R, W] in out; x are this rank's, and the others' out is not
// used.
void gather_over_ranks(const Context& context, const tensor::ConstTensor& x, dist::Range columns,
                       const tensor::Tensor& out);

// The parts of all ranks, in place: see dist::Communicator::gather_parts().
void gather_parts_over_ranks(const Context& context, std::byte* parts, std::int64_t bytes);

// out = ids - first, both contiguous in i32: as a rank numbers things of which it has those from
// `first` on.
void shift_ids(const Context& context, const tensor::ConstTensor& ids, std::int32_t first,
               const tensor::Tensor& out);

// Rows of a table of which this rank has those from `first` on; zeros for ids that it does not
// have.
void embed_part(const Context& context, const tensor::ConstTensor& table, std::int64_t first,
                const std::int32_t* ids, const tensor::Tensor& out);

}  // namespace motley::ops
