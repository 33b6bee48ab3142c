#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lora/files/adapter.h"
#include "lora/pages/format.h"
#include "lora/pages/packed_layout.h"

namespace motley::lora {

// Where the numbers of an adapter go in runs of pages, independent of the actual pages. Two pools
// with the same format and page size hold the same bytes.
struct Placement {
  enum class Role : std::uint8_t {
    rows,            // A: rank rounded up in rows
    columns,         // B and the embedding's A: rank rounded up in columns
    table,           // as it is
    vector,          // unchanged, in float32
    packed_a,        // of one seam
    packed_b,        // rows in order
    packed_gate_up,  // B of gate and up, whose rows alternate in groups of 8
  };
  struct Blob {
    Role role = Role::rows;
    std::int32_t first = -1;         // index into Adapter::matrices
    std::int32_t second = -1;        // packed: up's
    std::int32_t second_column = 0;  // packed: where up's ranks begin
    std::int32_t columns = 0;        // packed: in rank space
    std::uint32_t run = 0;
    std::size_t offset = 0;   // bytes from the begin of the run
    std::size_t numbers = 0;  // bytes before the scales
    std::size_t bytes = 0;
  };
  // Packed factors of gate and up (seam 0), or of down (1), of a layer's experts.
  struct Seam {
    std::int32_t layer = 0;
    std::int32_t seam = 0;
    std::int32_t first_site = -1;   // index into sites: gate's or down's
    std::int32_t second_site = -1;  // up's
    std::size_t packed = 0;         // the first expert's index into `packed`
  };

  PageFormat format;
  std::uint64_t page_bytes = 0;
  std::vector<std::uint32_t> runs;  // pages of each run
  std::vector<Blob> blobs;
  // The canonical sites, and the blob of each of Adapter::matrices; -1 if it is packed.
  std::vector<SiteDelta> sites;
  std::vector<std::int32_t> blob_of_matrix;
  std::vector<Seam> seams;
  std::vector<std::array<std::int32_t, 2>> packed;  // blobs of A and B, by expert
  int largest_rank = 0;
  std::string exclusive;

  std::uint64_t pages() const;
  bool is_packed(Site site) const {
    return format.experts == Layout::packed && is_expert(site.projection);
  }
  std::size_t experts(const Seam& seam) const;
  JoinedFactors joined(const Seam& seam, std::size_t expert) const;
};

// Alignment of blobs, as vector loads and bulk copies require.
inline constexpr std::size_t blob_alignment = 64;

Placement place_blobs(const Adapter& adapter, PageFormat format, std::uint64_t page_bytes);

}  // namespace motley::lora
