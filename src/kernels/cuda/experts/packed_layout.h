#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "base/system/stream_handle.h"
#include "kernels/weight_view.h"

// The packed layouts of weights that the grouped expert GEMMs read; the device packs them at load.
// Packed rows of gate and up alternate in groups of 8: packed row r is row r / 16 * 8 + r % 8 of
// gate if r % 16 < 8, else of up. Rows of down stay in order.
namespace motley::kernels::cuda {

struct ExpertShape {
  int experts = 0;
  int hidden = 0;        // H
  int intermediate = 0;  // I
};

enum class ExpertFormat : std::uint8_t { bf16, int4 };

// What the grouped GEMMs can read: bf16, and int4 in groups of 32, 64 or 128. Packing rounds the
// scales of int4 to bf16.
struct PackedExperts {
  ExpertFormat format = ExpertFormat::bf16;
  int scales_per_128 = 1;         // int4: 1 (groups of 128) or 4 (of 32; groups of 64 twice)
  const void* gate_up = nullptr;  // bf16: [E, 2 I, H]
  const void* down = nullptr;     // bf16: [E, H, I]
};

// int4: [E][rows / 128][groups of 128][two halves] of blobs, each 64 rows x 128 k. In a blob, the
// word of k16 step s of thread t of a warpgroup is at (s / 4) 2048 + t 16 + (s % 4) 4. Its nibble j
// (0..3) is the even k of A register j, nibble j + 4 the odd k beside it. Scales
// [scales_per_128][64] in bf16 follow. Padding behind the true rows and columns is zero.
constexpr int blob_bytes(int scales_per_128) { return 4096 + 128 * scales_per_128; }
constexpr int int4_scales_per_128(int group) { return group == 128 ? 1 : 4; }

std::size_t packed_expert_bytes(ExpertFormat format, int scales_per_128, int experts, int rows,
                                int columns);

// `gate`, `up` and `down` are [experts] each, in device memory. To pack int4, all of them must be
// int4 with one group size; to pack bf16 they may be of any kind, and are decoded and rounded once.
// packed_gate_up and packed_down have packed_expert_bytes() for 2 I x H and H x I.
struct PackExperts {
  ExpertShape shape{};
  ExpertFormat format = ExpertFormat::bf16;
  int scales_per_128 = 1;
  const WeightView* gate = nullptr;
  const WeightView* up = nullptr;
  const WeightView* down = nullptr;
  void* packed_gate_up = nullptr;
  void* packed_down = nullptr;
};
Result<void> pack_experts(const PackExperts& params, StreamHandle stream);

}  // namespace motley::kernels::cuda
