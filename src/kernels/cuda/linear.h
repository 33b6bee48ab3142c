#pragma once

#include <cstddef>
#include <span>

#include "kernels/elementary.h"

// The ways that the GPU has to a product x W^T; cuda::linear chooses. Each fixes the order of its
// sums by the weight's shape, so a row's bits don't depend on the rows beside it.
namespace motley::kernels::cuda {

// Everything in float32, k ascending, for any format, type and size.
void linear_exact(const Linear& params, StreamHandle stream);
void linear_transposed_exact(const LinearTransposed& params, StreamHandle stream);

// Tensor cores over bf16 rows, for bf16 weights and int4 ones whose groups are multiples of 32:
// made for few rows, right for any number. Several products of one x with weights of one format and
// the same `in` are one launch; who runs together is part of the shape that fixes the order of
// sums.
inline constexpr std::size_t linear_streams_most = 4;
bool linear_streams_supports(const Linear& params);
void linear_streams(std::span<const Linear> products, StreamHandle stream);

// bf16 times bf16 for few rows, at the speed of reading the weights; otherwise as streams.
inline constexpr std::size_t linear_slabs_most = 4;
inline constexpr std::int64_t linear_slabs_most_rows = 16;
bool linear_slabs_supports(const Linear& params);
void linear_slabs(std::span<const Linear> products, const Ahead& ahead, StreamHandle stream);

// cuBLASLt, for bf16 rows times bf16 weights, or for float32 ones, of which products take ten bits
// behind the point. Unless the call is to be batch-invariant, another
// number of rows may have another order of sums. False where it has no way to do this one.
Result<void> open_matmul_library();
bool linear_library(const Linear& params, StreamHandle stream);
bool linear_transposed_library(const LinearTransposed& params, StreamHandle stream);

}  // namespace motley::kernels::cuda
