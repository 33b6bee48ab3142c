#pragma once

#include <cstddef>
#include <cstdint>

#include "base/system/stream_handle.h"
#include "kernels/adapter_tables.h"

namespace motley::gpu_tests {

// One read of all that a step's table leads to, for adapters with float32 factors at one site.
struct ReadTable {
  const std::int32_t* labels = nullptr;      // [rows]
  const std::int32_t* term_begin = nullptr;  // [label_count + 1]
  const kernels::AdapterTerm* terms = nullptr;
  int rows = 0;
  int label_count = 0;
  int site = 0;  // place in a term's sites
  int in = 0;
  int out = 0;
  // Grows by one behind a step's last read; sums of step s, read r begin at (s reads + r)
  // label_count.
  std::int32_t* step = nullptr;
  std::uint32_t* sums = nullptr;
  int reads = 0;
};

// A word's part in the sum of its blob: any order of adding gives the same.
constexpr std::uint32_t word_sum(std::uint32_t word, std::uint32_t place) {
  return (word ^ (place * 0x9E3779B9U)) * 0x85EBCA6BU;
}

void read_table(const ReadTable& params, int read, StreamHandle stream);

}  // namespace motley::gpu_tests
