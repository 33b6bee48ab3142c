#pragma once

#include "model/latent_attention.h"

namespace motley::model {

// The formula of latent attention as it is written: every sequence's latents, from position 0 to
// the step's last one, go through kv_b under the sequence's own mix, and its rows attend to the
// heads' keys and values that this makes. The reference for apply(), in the host's memory and on no
// hot path: room for a sequence's keys and values is allocated here, since it grows with the
// context and not with the step. For the rows' own, scratch_bytes() of the block is enough.
//
// A sequence's rows of the step have one mix, and pages are those of apply(); what it stores there
// is the same too.
void apply_plain(const LatentAttention& block, const Step& step, const LayerPages& pages,
                 const tensor::ConstTensor& x, const tensor::Tensor& out);

}  // namespace motley::model
