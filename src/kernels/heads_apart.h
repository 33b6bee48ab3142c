// What heads get before they are turned, as calls of their own that work in place: for a CPU, and
// for heads that a GPU's launch does not hold.
#pragma once

#include <cstdint>

#include "kernels/elementary.h"

namespace motley::kernels {

// Of heads side by side.
inline RoundTo bias_of(const Heads& heads, std::int64_t rows) {
  return {.rows = rows,
          .width = heads.heads * heads.width,
          .x = heads.x,
          .x_type = heads.x_type,
          .x_stride = heads.x_stride,
          .bias = heads.bias,
          .out = heads.x,
          .out_type = heads.x_type,
          .out_stride = heads.x_stride};
}

inline RmsNorm norm_of(const Heads& heads, std::int64_t rows) {
  return {.size = {rows, heads.heads, heads.width},
          .x = heads.x,
          .x_type = heads.x_type,
          .x_stride = heads.x_stride,
          .x_part_stride = heads.x_head_stride,
          .weight = heads.norm_weight,
          .eps = heads.eps,
          .weight_in_f32 = heads.weight_in_f32,
          .out = heads.x,
          .out_type = heads.x_type,
          .out_stride = heads.x_stride,
          .out_part_stride = heads.x_head_stride};
}

}  // namespace motley::kernels
