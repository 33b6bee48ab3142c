#pragma once

#include <span>

#include "dist/layout.h"
#include "lora/files/adapter.h"
#include "lora/site.h"

namespace motley::lora {

// A rank's part of an adapter. Where the rank has some outputs of a map, it has those rows of B and
// the whole of A; where it has some inputs, it has those columns of A and the whole of B: then its
// delta, like its product, is a part of a sum over ranks. Biases of such a map are on rank 0 only.
// Of a layer's experts it has the rank's, numbered from 0, and one copy of a factor that they
// share; it may adapt none of them, but has the site: all ranks foresee the same sites. Another
// site of which this rank has no part is left out; one that no entry of `shards` names is whole.
// The version is that of the whole adapter.
Adapter shard_of(const Adapter& adapter, std::span<const SiteShard> shards);

}  // namespace motley::lora
