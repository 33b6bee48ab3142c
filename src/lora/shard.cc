#include "lora/shard.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace motley::lora {
namespace {

using dist::Range;

// Copies parts of an adapter's matrices, each part once: deltas that share a factor share its part.
class Parts {
 public:
  Parts(const Adapter& from, Adapter& to) : from_(from), to_(to) {}

  int rows(int index, const Range& range) { return part(index, &range, nullptr); }
  int columns(int index, const Range& range) { return part(index, nullptr, &range); }
  int block(int index, const Range& rows, const Range& columns) {
    return part(index, &rows, &columns);
  }

 private:
  int part(int index, const Range* rows, const Range* columns) {
    if (index < 0) return index;
    const Matrix& whole = from_.matrices[static_cast<std::size_t>(index)];
    const Range own_rows = rows != nullptr ? *rows : Range{0, whole.rows};
    const Range own_columns = columns != nullptr ? *columns : Range{0, whole.columns};
    const auto key =
        std::tuple(index, own_rows.begin, own_rows.end, own_columns.begin, own_columns.end);
    const auto [known, is_new] = known_.try_emplace(key, static_cast<int>(to_.matrices.size()));
    if (!is_new) return known->second;
    MOTLEY_CHECK(own_rows.end <= whole.rows && own_columns.end <= whole.columns,
                 "a part of the matrix");
    Matrix& part = to_.matrices.emplace_back();
    part.rows = own_rows.size();
    part.columns = own_columns.size();
    part.values.reserve(static_cast<std::size_t>(part.rows * part.columns));
    for (std::int64_t row = own_rows.begin; row < own_rows.end; ++row)
      part.values.insert(part.values.end(), whole.row(row) + own_columns.begin,
                         whole.row(row) + own_columns.end);
    return known->second;
  }

  const Adapter& from_;
  Adapter& to_;
  std::map<std::tuple<int, std::int64_t, std::int64_t, std::int64_t, std::int64_t>, int> known_;
};

// What a rank has of a site that is whole on every rank.
SiteShard whole(const SiteDelta& delta) {
  return {.site = delta.site, .out = {0, delta.out}, .in = {0, delta.in}};
}

// Of the experts that this rank has, or all.
std::vector<Factors> factors_of(const SiteDelta& delta, const SiteShard& shard) {
  if (!shard.experts) return delta.factors;
  const auto [begin, end] = *shard.experts;
  MOTLEY_CHECK(end <= std::ssize(delta.factors), "experts of the site");
  return {delta.factors.begin() + begin, delta.factors.begin() + end};
}

SiteDelta part_of(const SiteDelta& delta, const SiteShard& shard, Parts& parts) {
  SiteDelta own = delta;
  const bool embeds = delta.site.projection == Projection::embed;
  own.out = shard.out.size();
  own.in = shard.in.size();
  own.factors = factors_of(delta, shard);
  for (Factors& factors : own.factors) {
    if (!factors.present()) continue;
    // The embedding's A is [vocabulary, rank].
    factors.a = embeds ? parts.rows(factors.a, shard.in) : parts.columns(factors.a, shard.in);
    factors.b = parts.rows(factors.b, shard.out);
  }
  // The embedding's table is [vocabulary, hidden].
  own.replaced = embeds ? parts.block(delta.replaced, shard.in, shard.out)
                        : parts.block(delta.replaced, shard.out, shard.in);
  own.gain = parts.columns(delta.gain, shard.out);
  own.lora_bias = shard.has_biases ? parts.columns(delta.lora_bias, shard.out) : -1;
  own.replaced_bias = shard.has_biases ? parts.columns(delta.replaced_bias, shard.out) : -1;
  return own;
}

}  // namespace

Adapter shard_of(const Adapter& adapter, std::span<const SiteShard> shards) {
  Adapter own{.version = adapter.version,
              .matrices = {},
              .sites = {},
              .convention = adapter.convention,
              .swapped = adapter.swapped,
              .expert_major = adapter.expert_major,
              .largest_rank = adapter.largest_rank};
  Parts parts(adapter, own);
  for (const SiteDelta& delta : adapter.sites) {
    const auto found = std::ranges::find(shards, delta.site, &SiteShard::site);
    const SiteShard shard = found == shards.end() ? whole(delta) : *found;
    if (shard.out.empty() || shard.in.empty()) continue;
    own.sites.push_back(part_of(delta, shard, parts));
  }
  return own;
}

}  // namespace motley::lora
