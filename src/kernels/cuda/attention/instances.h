// The instances of the tensor cores' attention kernel, one file for each pair of widths.
#pragma once

#include <array>

namespace motley::kernels::cuda::tiles {

struct TileParams;

struct Instance {
  void (*kernel)(TileParams) = nullptr;
  int threads = 0;
  int shared_bytes = 0;
  int rows = 0;       // packed rows of a tile
  int most_rows = 0;  // packed rows of a sequence that it serves
  int blocks_per_sm = 1;
};

// For sequences of few packed rows, by rising bounds (some are missing, at the end), and of many;
// where these have another order of sums than few, once more in theirs.
struct Instances {
  std::array<Instance, 3> few;
  Instance many, many_in_units;
};

Instances widths_64();
Instances widths_128();
Instances widths_192_128();
Instances latent_576_512();

}  // namespace motley::kernels::cuda::tiles
