#pragma once

#include <span>

#include "kernels/elementary.h"
#include "kernels/input_rounding.h"
#include "kernels/kernel.h"

// Launches of the kernels for x W^T; dense_kernels.h says what each supports. Constants here are
// shared by a kernel and its description.
namespace motley::kernels::cuda {

class MatmulLibrary;

// float32 with k ascending, for any format, type and size.
inline constexpr Tile exact_tile{.outputs = 64, .rows = 64, .k = 32};
void linear_exact(const Linear& params, StreamHandle stream);
void linear_transposed_exact(const LinearTransposed& params, StreamHandle stream);

// Tensor cores over bf16 rows: fast for few rows, correct for any number. The products of a launch
// share x, weight format and `in`. Which products are launched together depends on shapes only, and
// so does the order of sums.
inline constexpr int gemv_streamed_max_products = 4;
inline constexpr Tile gemv_streamed_tile{.outputs = 256, .rows = 64, .k = 32};
Result<void> prepare_gemv_streamed();
void gemv_streamed(std::span<const Linear> products, StreamHandle stream);

// The same for weights of codes: int4, int8, FP8, MXFP4 and NVFP4. Groups of inputs are a power of
// two, at least this many except in NVFP4.
inline constexpr int gemv_streamed_codes_group = 32;
inline constexpr Tile gemv_streamed_codes_tile{.outputs = 128, .rows = 64, .k = 128};
Result<void> prepare_gemv_streamed_codes();
void gemv_streamed_codes(std::span<const Linear> products, StreamHandle stream);

// Products with codes by the library, a panel of decoded weights at a time: for many rows, and for
// groups that the streamed GEMV does not read. Products whose results stand side by side, and whose
// weights fit one panel, are one product of the library.
inline constexpr int decoded_max_products = 4;
inline constexpr std::int64_t decoded_panel_numbers = std::int64_t{16} << 20;
std::int64_t decoded_panel_rows(const Linear& params);
// The product of one panel, whose first output is `first`.
Linear decoded_part(const Linear& params, const void* panel, std::int64_t first);
// Those products as one; its weight is the first one's.
Linear decoded_together(std::span<const Linear> products);
void linear_decoded(std::span<const Linear> products, MatmulLibrary& library, StreamHandle stream);

// Codes times codes of 8 bits, where the weights' file says that inputs are rounded to that type:
// for more rows than are read as fast as the weights. The products of a launch share x. Codes and
// scales of the inputs come to where their numbers would, at inputs.out. The tile is that of many
// rows; up to 256 it is 64 rows x 32 outputs.
inline constexpr int coded_max_products = 4;
inline constexpr Tile coded_tile{.outputs = 128, .rows = 128, .k = 128};
Result<void> prepare_coded();
void code_inputs(const ArrangeInputs& inputs, StreamHandle stream);
void linear_coded(std::span<const Linear> products, const ArrangeInputs& inputs,
                  StreamHandle stream);
// Whether linears() makes codes of the inputs of these.
bool takes_codes(const Linears& params, StreamHandle stream);

// bf16 times bf16 for few rows, at the speed of reading the weights. `in` is a multiple of the
// step. Prefetches `ahead` to L2.
inline constexpr int gemv_bulk_max_products = 4;
inline constexpr int gemv_bulk_step_inputs = 32;
inline constexpr Tile gemv_bulk_tile{.outputs = 8, .rows = 16, .k = 2048};
Result<void> prepare_gemv_bulk();
void gemv_bulk(std::span<const Linear> products, const Ahead& ahead, StreamHandle stream);

// The same for weights of FP8 or int8 without zero points. Scales are of a power of two of inputs,
// at least a step, or of whole rows; a block keeps those of its outputs.
inline constexpr std::int64_t gemv_bulk_scale_bytes = 24 << 10;  // of a product, at most
std::int64_t gemv_bulk_scales(const Linear& product);            // bytes of a block
Result<void> prepare_gemv_bulk_codes();
void gemv_bulk_codes(std::span<const Linear> products, const Ahead& ahead, StreamHandle stream);

// Latent attention's products per head: float32 rows times `narrow` weights in bf16, with optional
// rounding. The latent has one width; so have heads in the transposed product.
inline constexpr int per_head_latent = 512;
inline constexpr int per_head_width = 128;
inline constexpr Tile per_head_tile{.outputs = 16, .rows = 16, .k = 128};
void per_head_product(const LinearPerHead& params, StreamHandle stream);

}  // namespace motley::kernels::cuda
