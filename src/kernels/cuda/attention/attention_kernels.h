// The paged-attention kernels, as values.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "base/system/stream_handle.h"
#include "kernels/cuda/attention/instances.h"
#include "kernels/elementary.h"
#include "kernels/kernel.h"

namespace motley::kernels::cuda {

// Packed rows (tokens times query heads per kv head) of the sequences that a launch serves.
struct PackedRows {
  int least = 1;
  int max = std::numeric_limits<int>::max();
};

struct AttentionKernel {
  KernelInfo info;
  std::int64_t key_width = 0;  // 0: any width of keys and values
  std::int64_t value_width = 0;
  DType queries = DType::bf16;  // the type to which it rounds queries
  Support (*supports)(const AttentionKernel&, const Attention&) = nullptr;
  void (*run)(const AttentionKernel&, const Attention&, const PackedRows&, StreamHandle) = nullptr;
  tiles::Instance (*instance)() = nullptr;  // of tensor-core kernels
};

Support supports_plain(const AttentionKernel& kernel, const Attention& problem);
Support supports_few(const AttentionKernel& kernel, const Attention& problem);
Support supports_many(const AttentionKernel& kernel, const Attention& problem);
Support supports_codes(const AttentionKernel& kernel, const Attention& problem);
void run_plain(const AttentionKernel& kernel, const Attention& problem, const PackedRows& rows,
               StreamHandle stream);
void run_tiles(const AttentionKernel& kernel, const Attention& problem, const PackedRows& rows,
               StreamHandle stream);

// Blocks of 64 positions with an online softmax, in float32.
inline constexpr Arithmetic attention_in_f32{"attention_in_f32"};
// Units of positions, joined in order.
inline constexpr Arithmetic attention_in_units{"attention_in_units"};
// An online softmax over 128 positions at a time (of values wider than 128: over 64), split where
// the load requires it.
inline constexpr Arithmetic attention_in_tiles{"attention_in_tiles"};
// 64 positions at a time; split where the load requires it, unless batch_invariant is set. Of
// values that are too wide for sums in units.
inline constexpr Arithmetic attention_of_wide_values{"attention_of_wide_values"};

inline constexpr AttentionKernel plain_attention{
    .info = {.name = "plain", .arithmetic = attention_in_f32, .tile = {.rows = 1, .k = 64}},
    .queries = DType::f32,
    .supports = supports_plain,
    .run = run_plain};

template <int key_columns, int value_columns, int rows>
inline constexpr AttentionKernel few_attention{
    .info = {.name = rows == 8    ? "few_8"
                     : rows == 16 ? "few_16"
                                  : "few_32",
             .architecture = Architecture::sm_90a,
             .arithmetic =
                 tiles::keeps_units(value_columns) ? attention_in_units : attention_of_wide_values,
             .tile = {.outputs = value_columns, .rows = rows, .k = 64}},
    .key_width = key_columns,
    .value_width = value_columns,
    .supports = supports_few,
    .run = run_tiles,
    .instance = tiles::few_instance<key_columns, value_columns, rows>};

constexpr int many_rows(std::int64_t value_width, bool in_units) {
  return tiles::halves_columns(value_width, in_units) ? 64 : 128;
}

template <int key_columns, int value_columns, bool in_units>
inline constexpr AttentionKernel many_attention{
    .info = {.name = in_units ? "many_in_units" : "many",
             .architecture = Architecture::sm_90a,
             .arithmetic = !tiles::keeps_units(value_columns) ? attention_of_wide_values
                           : in_units                         ? attention_in_units
                                                              : attention_in_tiles,
             .tile = {.outputs = value_columns,
                      .rows = many_rows(value_columns, in_units),
                      .k = in_units || value_columns > 128 ? 64 : 128}},
    .key_width = key_columns,
    .value_width = value_columns,
    .supports = supports_many,
    .run = run_tiles,
    .instance = tiles::many_instance<key_columns, value_columns, in_units>};

// Over pages of codes; sums and roundings are those over pages of bf16.
template <int key_columns, int value_columns, int rows>
inline constexpr AttentionKernel few_codes_attention{
    .info = {.name = rows == 8 ? "few_codes_8" : "few_codes_16",
             .architecture = Architecture::sm_90a,
             .arithmetic =
                 tiles::keeps_units(value_columns) ? attention_in_units : attention_of_wide_values,
             .tile = {.outputs = value_columns, .rows = rows, .k = 64}},
    .key_width = key_columns,
    .value_width = value_columns,
    .supports = supports_codes,
    .run = run_tiles,
    .instance = tiles::few_codes_instance<key_columns, value_columns, rows>};

template <int key_columns, int value_columns>
inline constexpr AttentionKernel many_codes_attention{
    .info = {.name = "many_codes",
             .architecture = Architecture::sm_90a,
             .arithmetic =
                 tiles::keeps_units(value_columns) ? attention_in_units : attention_of_wide_values,
             .tile = {.outputs = value_columns, .rows = many_rows(value_columns, true), .k = 64}},
    .key_width = key_columns,
    .value_width = value_columns,
    .supports = supports_codes,
    .run = run_tiles,
    .instance = tiles::many_codes_instance<key_columns, value_columns>};

struct AttentionLaunch {
  const AttentionKernel* kernel = nullptr;
  PackedRows rows{};
};

// Sequences of many rows and sequences of few rows have a launch each.
struct AttentionLaunches {
  std::array<AttentionLaunch, 2> all{};
  int count = 0;

  std::span<const AttentionLaunch> span() const {
    return std::span(all).first(static_cast<std::size_t>(count));
  }
};

// Depends on the problem and on thresholds.h alone. Empty if no kernel applies.
AttentionLaunches select_attention(const Attention& problem);
// Lists every kernel and why it does not apply.
std::string refusals(const Attention& problem);

}  // namespace motley::kernels::cuda
