#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "model/forward/frame.h"
#include "model/forward/op_params.h"
#include "model/forward/run_op.h"
#include "ops/linear.h"
#include "ops/list/match.h"

// What the fusions of several files need of their ops.
namespace motley::model {

using Ops = std::span<const ops::LiveOp>;

template <class Params>
const Params& params(const ops::LiveOp& live) {
  return live.op->as<Params>();
}

inline bool share_x(Ops ops) {
  return std::ranges::all_of(
      ops, [&](const ops::LiveOp& each) { return each.op->reads[0] == ops.front().op->reads[0]; });
}

struct AdaptedMaps {
  std::array<lora::AdaptedLinear, ops::max_products> all;
  std::size_t count = 0;

  void add(const ops::LiveOp& live, const Frame& frame) {
    all[count++] = adapted(params<AdaptOp>(live), frame);
  }
  std::span<const lora::AdaptedLinear> span() const { return std::span(all).first(count); }
};

}  // namespace motley::model
