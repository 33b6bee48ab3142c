// Loads kernels for the current GPU before any is launched: the driver may wait for all of a GPU's
// work to load one, and another rank's may be waiting for this very kernel.
#pragma once

#include "base/result.h"

namespace motley::kernels::cuda {

Result<void> prepare_peer_sums();
Result<void> prepare_peer_maxima();
Result<void> prepare_peer_norms();
Result<void> prepare_peer_gather();
Result<void> prepare_staged_ranks();

}  // namespace motley::kernels::cuda
