#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "dist/layout.h"
#include "model/config/config.h"

namespace motley::model {

// The parts of a model that a rank holds. The rest (norms, routers, MLA's small projections) is on
// every rank.
struct Shard {
  int rank = 0;
  int ranks = 1;
  dist::HeadShard heads;      // of latent attention the KV head is every rank's
  dist::Range dense;          // of dense blocks' intermediate size
  dist::Range experts;        // of routed experts' intermediate size
  dist::Range shared_expert;  // of a shared expert's
  dist::Range vocabulary;     // of the embedding and the head

  bool is_cut() const { return ranks > 1; }
  bool is_first() const { return rank == 0; }
};

struct Ranks {
  int count = 1;
  int rank = 0;
  bool in_pieces = false;  // intermediate sizes are cut in pieces of several numbers
};
// Refuses more ranks than the model can be cut into. Pieces have up to 32 columns, so
// that most formats' groups and blocks stay whole or are cut into equal ones, and a GPU's kernels
// find the widths that they like.
Result<Shard> shard_of(const Config& config, const Ranks& ranks);

// A rank's part of a matrix [out, in]. Nothing: all of them.
struct Cut {
  std::optional<dist::Range> rows;
  std::optional<dist::Range> columns;

  bool empty() const { return !rows && !columns; }
};

// "heads 0-7 of 32, KV heads 0 of 4, ..." for reports.
std::string describe(const Shard& shard, const Config& config);

}  // namespace motley::model
