#include "lora/shard.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"

namespace motley::lora {
namespace {

using dist::Range;
using dist::Ranges;

// Copies parts of an adapter's matrices, each part once: deltas that share a factor share its part.
class Parts {
 public:
  Parts(const Adapter& from, Adapter& to) : from_(from), to_(to) {}

  int rows(int index, const Ranges& ranges) { return part(index, &ranges, nullptr); }
  int columns(int index, const Ranges& ranges) { return part(index, nullptr, &ranges); }
  int block(int index, const Ranges& rows, const Ranges& columns) {
    return part(index, &rows, &columns);
  }

 private:
  // Which of a matrix's rows and columns.
  struct Key {
    Ranges rows, columns;

    friend bool operator==(const Key&, const Key&) = default;
  };

  int part(int index, const Ranges* rows, const Ranges* columns) {
    if (index < 0) return index;
    const Matrix& whole = from_.matrices[static_cast<std::size_t>(index)];
    const Key key{.rows = rows != nullptr ? *rows : Range{0, whole.rows},
                  .columns = columns != nullptr ? *columns : Range{0, whole.columns}};
    std::vector<std::pair<Key, int>>& known = known_[index];
    const auto same = std::ranges::find(known, key, &std::pair<Key, int>::first);
    if (same != known.end()) return same->second;
    known.emplace_back(key, static_cast<int>(to_.matrices.size()));
    to_.matrices.push_back(part_of(whole, key));
    return known.back().second;
  }

  static Matrix part_of(const Matrix& whole, const Key& key) {
    const std::span<const Range> down = key.rows.parts();
    for (const Range& rows : down) MOTLEY_CHECK(rows.end <= whole.rows, "rows of the matrix");
    if (down.size() == 1 && key.columns == Ranges(Range{0, whole.columns}))
      return whole.rows_between(down.front().begin, down.front().end);
    Matrix part{.rows = key.rows.size(), .columns = key.columns.size()};
    part.values.reserve(static_cast<std::size_t>(part.size()));
    std::vector<float> row(static_cast<std::size_t>(whole.columns));
    for (const Range& rows : down) {
      for (std::int64_t at = rows.begin; at < rows.end; ++at) {
        whole.read(at * whole.columns, row);
        for (const Range& across : key.columns.parts())
          part.values.insert(part.values.end(), row.begin() + across.begin,
                             row.begin() + across.end);
      }
    }
    return part;
  }

  const Adapter& from_;
  Adapter& to_;
  std::map<int, std::vector<std::pair<Key, int>>> known_;  // by the whole matrix
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
              .largest_rank = adapter.largest_rank,
              .file = adapter.file};
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
