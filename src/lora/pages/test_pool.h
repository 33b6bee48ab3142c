#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "base/number_types.h"
#include "lora/files/adapter.h"
#include "lora/pages/resident.h"
#include "lora/test_base.h"

// Adapters for tests of the pool, and checks of its pages.
namespace motley::lora::test {

// One site q with numbers from the seed.
inline Adapter make_adapter(int rank, std::int64_t in, std::int64_t out, std::uint32_t seed) {
  std::mt19937 random(seed);
  Adapter adapter;
  adapter.matrices.push_back({rank, in, random_numbers(random, rank * in)});
  adapter.matrices.push_back({out, rank, random_numbers(random, out * rank)});
  SiteDelta delta{{0, Projection::q}, in, out, {{0, 1, rank, 0.5F}}};
  adapter.sites.push_back(delta);
  adapter.largest_rank = rank;
  adapter.version = hash_content(adapter);
  return adapter;
}

// Checks every number of A [padded, in] and B [out, padded], and the zeros behind the rank.
inline bool hold(const float* a, const float* b, std::int32_t padded, const Adapter& adapter) {
  const Matrix& from_a = adapter.matrices[0];
  const Matrix& from_b = adapter.matrices[1];
  const std::int64_t rank = from_a.rows;
  for (std::int64_t r = 0; r < padded; ++r) {
    for (std::int64_t k = 0; k < from_a.columns; ++k) {
      if (a[r * from_a.columns + k] != (r < rank ? from_a.row(r)[k] : 0.0F)) return false;
    }
    for (std::int64_t o = 0; o < from_b.rows; ++o) {
      if (b[o * padded + r] != (r < rank ? from_b.row(o)[r] : 0.0F)) return false;
    }
  }
  return true;
}

// The same for the factors of q.
inline bool holds(const Resident& resident, const Adapter& adapter) {
  const SiteView* view = resident.find({0, Projection::q});
  if (view == nullptr || view->factors[0].rank != adapter.matrices[0].rows) return false;
  const kernels::FactorEntry& factor = view->factors[0];
  return hold(static_cast<const float*>(factor.a), static_cast<const float*>(factor.b),
              factor.split, adapter);
}

}  // namespace motley::lora::test
