// Half a decode step of qwen3-30b-a3b: attention's output projection, the experts, and the q, k and
// v of the next layer. Sizes, how the weights are packed, and the parameters of a launch.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>

namespace motley::bench::half_step {

using Bf16 = __nv_bfloat16;

inline constexpr int hidden = 2048;
inline constexpr int attention = 4096;  // inputs of the output projection
inline constexpr int experts = 128;
inline constexpr int inner = 768;
inline constexpr int chosen = 8;
inline constexpr int projected = 5120;  // q, k and v
inline constexpr float norm_eps = 1e-6F;

inline constexpr int consumer_warps = 8;
inline constexpr int consumers = 32 * consumer_warps;
inline constexpr int threads = consumers + 32;  // the last warp issues the copies
inline constexpr int max_rows = 4;
inline constexpr int max_slots = 16;

// Weights are the 16 side of mma.m16n8k16. A row tile is 16 rows of a matrix. A tile of bf16 is 16
// rows x 16 k, 512 bytes: a lane's four registers lie side by side. Register `hi + 2 j` of lane
// 4 g + q holds row g + 8 hi, k = 4 q + 2 j and the next.
// A stage is what the ring's slot holds.
inline constexpr int tile = 16;
inline constexpr int tile_bytes = 512;
inline constexpr int stage_bytes = 16384;  // of bf16: a row tile x 512 k, or 8 rows x 1024 k
inline constexpr int stage_tiles = stage_bytes / tile_bytes;
inline constexpr int output_tiles = hidden / tile;
inline constexpr int output_stages = attention / tile / stage_tiles;
inline constexpr int projection_stages = hidden / tile / stage_tiles;  // of a row tile
inline constexpr int unit_stages = projection_stages / 2;              // of 8 rows
// A row tile of gate_up holds 8 rows of gate and the same 8 of up.
inline constexpr int gate_up_tiles = inner / 8;
inline constexpr int down_tiles = hidden / tile;

// Experts' weights in bf16.
struct Bf16Experts {
  static constexpr int gate_up_stages = 4;
  static constexpr int gate_up_bytes = stage_bytes;  // of a stage
  static constexpr int down_stages = 2;
  static constexpr int down_bytes = inner / tile / 2 * tile_bytes;
  static constexpr int slot_bytes = stage_bytes;
};
// In int4 with float32 scales of 128 k. A row tile of one group: a word of 8 codes for each lane
// and k16 step, then 16 scales. Nibble j of a word is the even k of register j, nibble j + 4 the
// odd.
struct Int4Experts {
  static constexpr int group = 128;
  static constexpr int group_steps = group / tile;
  static constexpr int group_codes = group_steps * 32 * 4;
  static constexpr int group_bytes = group_codes + tile * 4;
  static constexpr int gate_up_stages = 1;
  static constexpr int gate_up_bytes = hidden / group * group_bytes;
  static constexpr int down_stages = 1;
  static constexpr int down_bytes = inner / group * group_bytes;
  static constexpr int slot_bytes = gate_up_bytes;
};

// q, k and v over the blocks: each has as many whole row tiles as all can have; units of 8 rows are
// the rest. In a unit's tile of 8 rows x 32 k a lane has its registers of two k16 steps.
struct ProjectionShare {
  int tiles;  // of a block
  int units;  // of all blocks
  __host__ __device__ explicit ProjectionShare(int blocks)
      : tiles(projected / tile / blocks), units((projected / tile - tiles * blocks) * 2) {}
};

// What one SM writes and the others read within a launch, as 32-bit words. A word that has not been
// written is `no_value`. There are two sets: a launch uses one and clears the other.
inline constexpr std::uint32_t no_value = 0xFFFFFFFF;  // a NaN that no operation makes
struct Cells {
  int rows;
  __host__ __device__ int x() const { return 0; }  // float [rows, hidden]
  __host__ __device__ int logits() const { return rows * hidden; }
  __host__ __device__ int inner_values() const { return logits() + rows * experts; }  // bf16
  __host__ __device__ int sum() const { return inner_values() + rows * chosen * inner / 2; }
  __host__ __device__ int words() const { return sum() + rows * hidden; }
};

struct Weights {
  const unsigned char* output;
  const Bf16* router;  // [experts, hidden]
  const Bf16* expert_norm;
  const Bf16* projection_norm;
  const unsigned char* gate_up;
  const unsigned char* down;
  const unsigned char* projection_tiles;
  const unsigned char* projection_units;
};

// What a launch does beyond reading the weights once.
struct Rung {
  bool hands_over = false;
  bool routes = false;    // experts' addresses come from the choice
  bool computes = false;  // the products; includes the other two
  int ahead = 0;          // stages of q, k and v that are copied before the choice is known
};

// Where a thread waits.
enum class Place : std::uint32_t { none, x, logits, inner_values, sum, full_slot, empty_slot };
inline constexpr const char* place_names[] = {
    "none", "x after o", "logits", "h after gate_up", "sum after down", "full slot", "empty slot"};

inline constexpr int stamps = 11;  // of a block: clocks at points of `Consumer::run`

struct HalfStep {
  Weights weights{};
  Bf16* projections =
      nullptr;                // [rows, projected]; the first `attention` columns are also the input
  float* residual = nullptr;  // [rows, hidden]
  std::uint32_t* cells = nullptr;
  std::uint32_t* epoch = nullptr;
  std::uint32_t* failure = nullptr;  // 0, or the place and the block of the first wait that expired
  std::uint32_t* host_failure = nullptr;  // the same in the host's memory
  const float* logits = nullptr;          // [rows, experts], of rungs that don't compute
  const int* expert_list = nullptr;       // count, ids in ascending order: the choice of `logits`
  int* live = nullptr;                    // count of experts
  long long* stamps = nullptr;            // [blocks, stamps] or null
  std::uint64_t limit_ns = 0;
  int slots = 0;
  Rung rung;
};

}  // namespace motley::bench::half_step
