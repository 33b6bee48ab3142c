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
  dist::Range dense;           // of dense blocks' intermediate size
  dist::ExpertShard experts;   // routed ones
  dist::Range expert_columns;  // of their intermediate size
  dist::Range shared_expert;   // of a shared expert's
  dist::Range vocabulary;      // of the embedding and the head
  // Every rank's part begins at a multiple of so many columns.
  struct Units {
    std::int64_t dense = 0;
    std::int64_t expert_columns = 0;
    std::int64_t shared_expert = 0;
  };
  Units units;

  bool is_cut() const { return ranks > 1; }
  bool is_first() const { return rank == 0; }
  // Whether this rank has parts of its routed experts. Else they are whole, but may be only some.
  bool cuts_experts() const { return experts.ranks > 1; }
  // Whether other ranks have other experts.
  bool deals_experts() const { return experts.ranks < ranks; }
};

struct Ranks {
  int count = 1;
  int rank = 0;
  int expert_groups = 1;   // of ranks, over which experts are dealt; divides their number
  bool in_pieces = false;  // intermediate sizes are cut in pieces of several numbers
};
// Refuses more ranks or groups than the model can be cut into. Pieces have up to 32 columns, so
// that most formats' groups and blocks stay whole or are cut into equal ones, and a GPU's kernels
// find the widths that they like.
Result<Shard> shard_of(const Config& config, const Ranks& ranks);

// The heads of a mixer that a rank has. Every rank's begin at a multiple of `unit`.
struct HeadPart {
  dist::HeadShard own;
  std::int64_t unit = 0;
};
HeadPart heads_of(const GroupedConfig& mixer, const Shard& shard);
// The KV head is every rank's.
HeadPart heads_of(const LatentConfig& mixer, const Shard& shard);
// Key heads are dealt as KV heads are.
HeadPart heads_of(const DeltaNetConfig& mixer, const Shard& shard);
// Whether the rank has heads of all mixers of the model.
bool has_heads(const Config& config, const Shard& shard);

// A rank's part of a matrix [out, in]. Nothing: all of them.
struct Cut {
  std::optional<dist::Ranges> rows;
  std::optional<dist::Range> columns;
  std::int64_t column_unit = 0;  // every rank's columns begin at a multiple of it

  bool empty() const { return !rows && !columns; }
};

// "heads 0-7 of 32, KV heads 0 of 4, ..." for reports.
std::string describe(const Shard& shard, const Config& config);

}  // namespace motley::model
