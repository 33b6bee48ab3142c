#pragma once

#include "kernels/elementary.h"
#include "model/forward/fused_ops.h"

// Heads that are prepared for attention by one launch: what fusions.cc's patterns ask for, and
// their launches.
namespace motley::model {

// [adapt or bias..., norm*, rotate+, store+, round?], and without the first ones. Attention reads
// the values that are kept: rounded heads, or heads that are neither stored nor rounded.
bool fits_heads(Ops ops, const Frame& frame);
void run_heads(Ops ops, const Frame& frame, const kernels::Ahead& ahead);
bool fits_adapted_heads(Ops ops, const Frame& frame);
void run_adapted_heads(Ops ops, const Frame& frame, const kernels::Ahead& ahead);
bool keeps_queries(const ops::OpList& list, Ops ops, ValueId value);

// Rows of latent attention: [norm latent, rotate key, store both, rotate queries, round them].
bool fits_latent_rows(Ops ops, const Frame& frame);
void run_latent_rows(Ops ops, const Frame& frame, const kernels::Ahead& ahead);

}  // namespace motley::model
