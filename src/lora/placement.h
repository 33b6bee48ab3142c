#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "lora/adapter.h"

namespace motley::lora {

// Where each matrix of an adapter goes in runs of pages, whatever pages these will be.
struct Placement {
  enum class Role : std::uint8_t {
    unused,
    rows,     // A: rank rounded up in rows
    columns,  // B and the embedding's A: rank rounded up in columns
    table,    // as it is
    vector,   // as it is, in float32
  };
  struct Blob {
    Role role = Role::unused;
    std::uint32_t run = 0;
    std::size_t offset = 0;  // bytes from the run's beginning
    std::size_t bytes = 0;
  };

  std::vector<Blob> blobs;          // one for each of Adapter::matrices
  std::vector<std::uint32_t> runs;  // pages of each run

  std::uint64_t pages() const;
};

// A rank as pages hold it.
constexpr std::int32_t padded_rank(std::int32_t rank) { return (rank + 7) / 8 * 8; }

Placement place_blobs(const Adapter& adapter, DType dtype, std::uint64_t page_bytes);

// Writes all blobs; bases are the addresses of the runs.
void write_blobs(const Adapter& adapter, const Placement& placement, DType dtype,
                 std::span<std::byte* const> bases);

}  // namespace motley::lora
