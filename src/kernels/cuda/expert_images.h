#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "base/stream_handle.h"
#include "kernels/weight_view.h"

// The layouts that the grouped expert kernels read, made on the device when weights and adapters
// are loaded. Rows of gate and up alternate by eights in an image: row r is row r / 16 * 8 + r % 8
// of gate where r % 16 < 8, else of up. Rows of down stay in order.
namespace motley::kernels::cuda {

struct ExpertShape {
  int experts = 0;
  int hidden = 0;        // H
  int intermediate = 0;  // I
};

enum class ExpertFormat : std::uint8_t { bf16, int4 };

// What the grouped kernels can read: bf16, and int4 in groups of 32, 64 or 128 whose scales are
// rounded to bf16 here.
struct ExpertImages {
  ExpertFormat format = ExpertFormat::bf16;
  int scales_per_128 = 1;         // int4: 1 (groups of 128) or 4 (of 32; groups of 64 twice)
  const void* gate_up = nullptr;  // bf16: [E, 2 I, H]
  const void* down = nullptr;     // bf16: [E, H, I]
};

// int4: [E][rows / 128][groups of 128][two halves] of blobs, each 64 rows x 128 k. A blob: the word
// of k16 step s of thread t of a warpgroup at (s / 4) 2048 + t 16 + (s % 4) 4, its nibble j (0..3)
// the even k of A register j, nibble j + 4 the odd k beside it; then scales [scales_per_128][64] in
// bf16. What lies behind the true rows and columns is zero.
constexpr int blob_bytes(int scales_per_128) { return 4096 + 128 * scales_per_128; }
constexpr int int4_scales_per_128(int group) { return group == 128 ? 1 : 4; }

std::size_t expert_image_bytes(ExpertFormat format, int scales_per_128, int experts, int rows,
                               int columns);

// `gate`, `up` and `down` are [experts] each, in device memory, all of one kind and group. gate_up
// and down have expert_image_bytes() for 2 I x H and H x I.
struct PackExperts {
  ExpertShape shape{};
  ExpertFormat format = ExpertFormat::bf16;
  int scales_per_128 = 1;
  const WeightView* gate = nullptr;
  const WeightView* up = nullptr;
  const WeightView* down = nullptr;
  void* gate_up_image = nullptr;
  void* down_image = nullptr;
};
Result<void> pack_experts(const PackExperts& params, StreamHandle stream);

// One expert's factors of one adapter at a seam, as the kernels read them. Columns in rank space:
// gate's ranks up to a multiple of 8, up's behind them, all up to a multiple of 16; where gate and
// up share A, one set for both.
//   a: [rank / 32 blocks][in / 64, even][rows of the block][64] in bf16, 128-byte swizzle
//   b: [image rows / 64, a multiple of 4][rank / 16][64 rows][16] in bf16, 32-byte swizzle
struct PackedDelta {
  const void* a;
  const void* b;
  std::int32_t rank;   // columns: a multiple of 16; 0: absent
  std::int32_t split;  // columns below it take scale[0], those behind it scale[1]
  float scale[2];
};

constexpr int packed_rank(int first, int second, bool shared_a) {
  const int ranks = (first + 7) / 8 * 8 + (shared_a ? 0 : (second + 7) / 8 * 8);
  return (ranks + 15) / 16 * 16;
}
std::size_t packed_a_bytes(int packed_rank, int in);
std::size_t packed_b_bytes(int packed_rank, int image_rows);

// Canonical factors in bf16: A [rank, in], B [out, padded]. Second: up's at seam 1, absent (rank 0)
// at seam 2. An image whose address is null is not written: it is shared and there already.
struct PackDelta {
  const void* a[2];
  const void* b[2];
  std::int32_t rank[2];
  std::int32_t padded[2];
  std::int32_t shared_a;  // a[1] is a[0], and rank[1] is rank[0]
  std::int32_t gate_up;   // seam 1: image rows alternate
  std::int32_t in;
  std::int32_t out;  // of one of the two maps
  void* a_image;
  void* b_image;
};
// `items` in device memory.
Result<void> pack_deltas(const PackDelta* items, int count, StreamHandle stream);

}  // namespace motley::kernels::cuda
