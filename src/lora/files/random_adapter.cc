#include "lora/files/random_adapter.h"

#include <algorithm>
#include <set>

namespace motley::lora {
namespace {

constexpr std::size_t block_numbers = std::size_t{1} << 22;

bool is_attention(Projection projection) { return info(projection).part == "attention"; }

// Matrices are cut from one random block, each at its own offset.
class Factory {
 public:
  Factory(Adapter& adapter, std::uint64_t seed)
      : adapter_(adapter), state_(seed * 2654435761U + 88172645463325252U), block_(block_numbers) {
    for (float& number : block_)
      number = 0.02F * (static_cast<float>(next() & 0xFFFFFFU) / 8388608.0F - 1.0F);
  }

  int matrix(std::int64_t rows, std::int64_t columns) {
    Matrix made{.rows = rows, .columns = columns, .values = {}};
    const auto count = static_cast<std::size_t>(rows * columns);
    made.values.reserve(count);
    while (made.values.size() < count) {
      const std::size_t run = std::min(count - made.values.size(), block_.size() / 2);
      const auto begin = block_.begin() + static_cast<std::ptrdiff_t>(next() % (block_.size() / 2));
      made.values.insert(made.values.end(), begin, begin + static_cast<std::ptrdiff_t>(run));
    }
    adapter_.matrices.push_back(std::move(made));
    return static_cast<int>(adapter_.matrices.size()) - 1;
  }

 private:
  std::uint64_t next() {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return state_ >> 33;
  }

  Adapter& adapter_;
  std::uint64_t state_;
  std::vector<float> block_;
};

}  // namespace

Adapter random_adapter(const BaseView& base, const RandomAdapter& wanted) {
  Adapter adapter;
  adapter.largest_rank = wanted.rank;
  adapter.version = {.high = wanted.seed, .low = static_cast<std::uint64_t>(wanted.rank)};
  Factory factory(adapter, wanted.seed);
  for (const SiteSpec& spec : base.sites()) {
    const Projection projection = spec.site.projection;
    if (!is_attention(projection) && !is_expert(projection)) continue;
    SiteDelta delta{.site = spec.site, .in = spec.in, .out = spec.out, .factors = {}};
    const bool shares_a =
        wanted.shared_outer && spec.experts > 0 && projection != Projection::expert_down;
    const bool shares_b = wanted.shared_outer && projection == Projection::expert_down;
    for (int expert = 0; expert < std::max(spec.experts, 1); ++expert) {
      Factors factors{.rank = wanted.rank, .scale = 1.0F};
      const bool first = expert == 0;
      factors.a =
          shares_a && !first ? delta.factors.front().a : factory.matrix(wanted.rank, spec.in);
      factors.b =
          shares_b && !first ? delta.factors.front().b : factory.matrix(spec.out, wanted.rank);
      delta.factors.push_back(factors);
    }
    adapter.sites.push_back(std::move(delta));
  }
  return adapter;
}

FactorNumbers factor_numbers(const Adapter& adapter) {
  FactorNumbers numbers;
  const auto size_of = [&](int at) {
    const Matrix& matrix = adapter.matrices[static_cast<std::size_t>(at)];
    return matrix.rows * matrix.columns;
  };
  std::set<std::int32_t> expert_layers;
  for (const SiteDelta& site : adapter.sites) {
    const auto experts = static_cast<std::int64_t>(site.factors.size());
    const Factors& first = site.factors.front();
    if (is_expert(site.site.projection)) expert_layers.insert(site.site.layer);
    for (const int at : {first.a, first.b}) {
      // Shared by all experts, or the first of one per expert.
      const Factors& last = site.factors.back();
      const bool own = experts > 1 && at != last.a && at != last.b;
      (own ? numbers.each_expert : numbers.always) += size_of(at);
    }
  }
  if (!expert_layers.empty())
    numbers.each_expert /= static_cast<std::int64_t>(expert_layers.size());
  return numbers;
}

}  // namespace motley::lora
