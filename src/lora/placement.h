#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lora/adapter.h"
#include "lora/page_format.h"

namespace motley::lora {

// Where everything of an adapter goes in runs of pages, whatever pages these will be, and how it is
// found again. Two pools of one format and page size hold the same bytes by it.
struct Placement {
  enum class Role : std::uint8_t {
    rows,               // A: rank rounded up in rows
    columns,            // B and the embedding's A: rank rounded up in columns
    table,              // as it is
    vector,             // as it is, in float32
    a_image,            // of one seam
    b_image,            // rows in order
    alternating_image,  // rows of gate and up by eights
  };
  struct Blob {
    Role role = Role::rows;
    std::int32_t first = -1;         // place in Adapter::matrices
    std::int32_t second = -1;        // images: up's
    std::int32_t second_column = 0;  // images: where up's ranks begin
    std::int32_t columns = 0;        // images: of rank space
    std::uint32_t run = 0;
    std::size_t offset = 0;   // bytes from the run's beginning
    std::size_t numbers = 0;  // bytes before the scales
    std::size_t bytes = 0;
  };
  // a and b are places in blobs; the rest is as kernels::FactorEntry has it.
  struct Factor {
    std::int32_t a = -1;
    std::int32_t b = -1;
    std::int32_t rank = 0;
    std::int32_t split = 0;
    float scale[2] = {0, 0};
  };
  // Places in blobs, -1 where there is none; factors from `first` on, `count` of them.
  struct SitePlace {
    Site site;
    std::int64_t in = 0;
    std::int64_t out = 0;
    std::size_t first = 0;
    std::size_t count = 0;  // 0 where a seam has them
    std::int32_t lora_bias = -1;
    std::int32_t gain = -1;
    std::int32_t replaced = -1;
    std::int32_t replaced_bias = -1;
  };
  // Images of gate and up (seam 0), or of down (1), of a layer's experts.
  struct Seam {
    std::int32_t layer = 0;
    std::int32_t seam = 0;
    std::size_t first = 0;
    std::size_t count = 0;
  };

  PageFormat format;
  std::uint64_t page_bytes = 0;
  std::vector<Blob> blobs;
  std::vector<std::uint32_t> runs;  // pages of each run
  std::vector<Factor> factors;
  std::vector<SitePlace> sites;  // in ascending order of site
  std::vector<Seam> seams;
  int largest_rank = 0;
  std::string exclusive;

  std::uint64_t pages() const;
};

// Begins of blobs: what vector loads and bulk copies want.
inline constexpr std::size_t blob_alignment = 64;

Placement place_blobs(const Adapter& adapter, PageFormat format, std::uint64_t page_bytes);

}  // namespace motley::lora
