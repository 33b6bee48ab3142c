// Half a decode step: attention's output projection, the experts, and the projections of the next
// layer. Sizes, how the weights are packed, and the parameters of a launch.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_bf16.h>

// Each shape is compiled apart, into a namespace of its own.
#ifdef HALF_STEP_QWEN35
#define HALF_STEP_NAMESPACE half_step_qwen35
#else
#define HALF_STEP_NAMESPACE half_step_qwen3
#endif

namespace motley::bench::HALF_STEP_NAMESPACE {

using Bf16 = __nv_bfloat16;

#ifdef HALF_STEP_QWEN35
// qwen3.5-35b-a3b, layers of the gated delta net. The shared expert is number `experts`, which
// every row has besides the chosen ones.
inline constexpr const char* shape_name = "qwen3.5-35b-a3b";
inline constexpr int experts = 256;
inline constexpr int shared_experts = 1;
inline constexpr int inner = 512;
inline constexpr int projected = 12352;  // q, k, v, z, b and a
#else
inline constexpr const char* shape_name = "qwen3-30b-a3b";
inline constexpr int experts = 128;
inline constexpr int shared_experts = 0;
inline constexpr int inner = 768;
inline constexpr int projected = 5120;  // q, k and v
#endif
inline constexpr int hidden = 2048;
inline constexpr int attention = 4096;  // inputs of the output projection
inline constexpr int chosen = 8;
inline constexpr int taken = chosen + shared_experts;  // experts of a row
inline constexpr int all_experts = experts + shared_experts;
inline constexpr float norm_eps = 1e-6F;

inline constexpr int consumer_warps = 8;
inline constexpr int consumers = 32 * consumer_warps;
inline constexpr int threads = consumers + 32;  // the last warp issues the copies
inline constexpr int max_rows = 4;
inline constexpr int max_slots = 16;
inline constexpr int min_blocks = 130;
inline constexpr int max_blocks = 144;
inline constexpr int max_copies = 4;
inline constexpr int block_logits = (all_experts + min_blocks - 1) / min_blocks;

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
// A slice of an expert: 16 rows of gate, of up, and the 16 columns of down that read them.
inline constexpr int slices = inner / tile;
inline constexpr int warp_tiles = down_tiles / consumer_warps;  // of a slice of down

// Experts' weights in bf16.
struct Bf16Experts {
  static constexpr int gate_up_stages = 4;
  static constexpr int gate_up_bytes = stage_bytes;  // of a stage
  static constexpr int down_stages = 2;
  static constexpr int down_bytes = inner / tile / 2 * tile_bytes;
  static constexpr int slice_stages = 4;  // of a slice of down: 32 row tiles each
  static constexpr int slice_bytes = stage_bytes;
  static constexpr int slot_bytes = stage_bytes;
};
// In int4 with scales of 128 k, which are numbers of bf16. A row tile of one group: a word of 8
// codes for each lane and k16 step, then 16 scales in float32. Nibble j of a word is the even k of
// register j, nibble j + 4 the odd. A stage of a slice of down: the words of 64 row tiles, then
// their scales in bf16; 8 tiles belong to a warp.
struct Int4Experts {
  static constexpr int group = 128;
  static constexpr int group_steps = group / tile;
  static constexpr int group_codes = group_steps * 32 * 4;
  static constexpr int group_bytes = group_codes + tile * 4;
  static constexpr int gate_up_stages = 1;
  static constexpr int gate_up_bytes = hidden / group * group_bytes;
  static constexpr int down_stages = 1;
  static constexpr int down_bytes = inner / group * group_bytes;
  static constexpr int slice_stages = 2;
  static constexpr int slice_tiles = down_tiles / slice_stages;
  static constexpr int slice_codes = slice_tiles * 32 * 4;
  static constexpr int slice_bytes = slice_codes + slice_tiles * tile * 2;
  static constexpr int slot_bytes = gate_up_bytes;
};

// The projections over the blocks: each has as many whole row tiles as all can have; units of 8
// rows are the rest. In a unit's tile of 8 rows x 32 k a lane has its registers of two k16 steps.
struct ProjectionShare {
  int tiles;  // of a block
  int units;  // of all blocks
  __host__ __device__ explicit ProjectionShare(int blocks)
      : tiles(projected / tile / blocks), units((projected / tile - tiles * blocks) * 2) {}
};
inline constexpr int max_projection_items = projected / tile / min_blocks + 2;

// How the experts are shared out.
enum class Design {
  whole,   // gate_up over all blocks, its results to all blocks, then down over all blocks
  split,   // a block has slices of experts; sums of a block's slices go to the owners of outputs
  paired,  // the same in half of the shared memory: the next launch's blocks load meanwhile
};

// What one SM writes and the others read within a launch, as 32-bit words. A word that has not been
// written is `no_value`. There are two sets: a launch uses one and clears the other. What all
// blocks read lies there `copies` times, so that fewer blocks read a copy.
inline constexpr std::uint32_t no_value = 0xFFFFFFFF;  // a NaN that no operation makes
inline constexpr int logits_pitch = (all_experts + 3) / 4 * 4;
struct Cells {
  int rows;
  __host__ __device__ int x() const { return 0; }  // float [copies, rows, hidden]
  __host__ __device__ int sum() const { return max_copies * rows * hidden; }  // the same
  __host__ __device__ int logits() const {
    return 2 * sum();
  }                                               // float [copies, rows, logits_pitch]
  __host__ __device__ int inner_values() const {  // bf16
    return logits() + max_copies * rows * logits_pitch;
  }
  __host__ __device__ int words() const { return inner_values() + rows * taken * inner / 2; }
};
// The sums of a block's slices: float [output_tiles, blocks, rows, tile]. Every launch writes all
// of them; the lowest bit is that of the launch's number.
inline std::size_t part_words(int rows, int blocks) {
  return static_cast<std::size_t>(output_tiles) * blocks * rows * tile;
}

// Every value that a launch hands over or puts out, a word each; for checks.
struct Log {
  int rows;
  __host__ __device__ int x() const { return 0; }
  __host__ __device__ int logits() const { return rows * hidden; }
  __host__ __device__ int inner_values() const { return logits() + rows * all_experts; }
  __host__ __device__ int sum() const { return inner_values() + rows * taken * inner; }
  __host__ __device__ int out() const { return sum() + rows * hidden; }
  __host__ __device__ int words() const { return out() + rows * projected; }
};

struct Weights {
  const unsigned char* output;
  const Bf16* router;  // [all_experts, hidden]; the shared expert's gate last
  const Bf16* expert_norm;
  const Bf16* projection_norm;
  const unsigned char* gate_up;
  const unsigned char* down;
  const unsigned char* slices;  // of down
  const unsigned char* projection_tiles;
  const unsigned char* projection_units;
};

// What a launch does beyond reading the weights once.
struct Rung {
  bool hands_over = false;
  bool routes = false;    // experts' addresses come from the choice
  bool computes = false;  // the products; includes the other two
  int ahead = 0;          // stages of the projections that are copied before the choice is known
  int copies = 1;         // of what all blocks read
  int pause_ns = 0;       // between two looks at words that are not there yet
};

// Where a thread waits.
enum class Place : std::uint32_t {
  none,
  x,
  logits,
  inner_values,
  parts,
  sum,
  full_slot,
  empty_slot
};
inline constexpr const char* place_names[] = {
    "none",           "x after o",          "logits",    "h after gate_up",
    "sums of slices", "sum of the experts", "full slot", "empty slot"};

inline constexpr int stamps = 16;  // of a block: clocks at points of `run`, and its multiprocessor
inline constexpr int place_stamp = 15;

struct HalfStep {
  Weights weights;
  Bf16* projections;  // [rows, projected]; the first `attention` columns are also the input
  float* residual;    // [rows, hidden]
  std::uint32_t* cells;
  std::uint32_t* parts;
  std::uint32_t* epoch;
  std::uint32_t* failure;       // 0, or the place and the block of the first wait that expired
  std::uint32_t* host_failure;  // the same in the host's memory
  std::uint32_t* log;           // of this launch, or null
  const float* logits;          // [rows, all_experts], of rungs that don't compute
  const int* expert_list;       // count, ids in the order of their use: the choice of `logits`
  int* live;                    // count of experts
  long long* stamps;            // [blocks, stamps] or null
  std::uint64_t limit_ns;
  int slots;
  Rung rung;
};

}  // namespace motley::bench::HALF_STEP_NAMESPACE
