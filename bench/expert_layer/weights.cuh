// Random weights both sides can name: values are hashes of (seed, index), so the host's reference
// recomputes what the device packed. Rows are those of the kernel's image: gate_up interleaves 8
// gate rows with 8 up rows.
#pragma once

#include "layer.cuh"

namespace expert_layer {

__host__ __device__ inline uint32_t hash32(uint64_t seed, uint64_t i) {
  uint32_t x = static_cast<uint32_t>(i) * 0x9E3779B1u ^
               static_cast<uint32_t>(i >> 32) * 0x85EBCA6Bu ^
               static_cast<uint32_t>(seed) * 0xC2B2AE35u;
  x ^= x >> 16, x *= 0x7FEB352Du, x ^= x >> 15, x *= 0x846CA68Bu, x ^= x >> 16;
  return x;
}
// Multiples of 1/128 in [-1, 1) times `unit`: exact in bf16 when unit is a power of two.
__host__ __device__ inline float random_value(uint64_t seed, uint64_t i, float unit) {
  return (static_cast<int>(hash32(seed, i) >> 24) - 128) / 128.0f * unit;
}
constexpr float kWeightUnit = 1.0f / 32, kInputUnit = 2.0f;

__host__ __device__ inline int random_int4(uint64_t seed, uint64_t i) {
  return static_cast<int>(hash32(seed, i) >> 28) - 8;
}
__host__ __device__ inline float random_scale(uint64_t seed, uint64_t i) {
  return (1.0f + (hash32(seed + 77, i) >> 26) / 64.0f) / 256.0f;
}
// Image row of gate row i of an expert; its up row is 8 further.
__host__ __device__ inline int gate_row(int i) { return i / 8 * 16 + i % 8; }

static __global__ void fill_random(Bf16* out, size_t n, uint64_t seed, float unit) {
  size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < n; i += stride)
    out[i] = __float2bfloat16(random_value(seed, i, unit));
}

// Blobs [expert][128 rows][group of 128 k][64-row half]; one thread a 32-bit word, the scales by
// the first 64 of a blob.
static __global__ void fill_int4(uint8_t* out, int rows, int cols, uint64_t seed) {
  size_t blobs = static_cast<size_t>(kExperts) * (rows / 64) * (cols / 128);
  int groups = cols / 128;
  for (size_t blob = blockIdx.x; blob < blobs; blob += gridDim.x) {
    size_t half = blob % 2, group = blob / 2 % groups, tile = blob / 2 / groups;
    size_t row0 = tile * 128 + half * 64;  // over all experts
    uint8_t* base = out + blob * kBlobBytes;
    for (int i = threadIdx.x; i < 1024; i += blockDim.x) {
      int t = i % 128, s = i / 128;
      uint32_t word = 0;
      for (int j = 0; j < 4; j++)
        for (int odd = 0; odd < 2; odd++) {
          size_t row = row0 + 16 * (t / 32) + t % 32 / 4 + 8 * (j % 2);
          size_t k = group * 128 + 16 * s + 2 * (t % 4) + 8 * (j / 2) + odd;
          word |= static_cast<uint32_t>(random_int4(seed, row * cols + k) + 8) << 4 * (j + 4 * odd);
        }
      *reinterpret_cast<uint32_t*>(base + s / 4 * 2048 + t * 16 + s % 4 * 4) = word;
    }
    if (threadIdx.x < 64)
      reinterpret_cast<Bf16*>(base + 4096)[threadIdx.x] =
          __float2bfloat16(random_scale(seed, (row0 + threadIdx.x) * groups + group));
  }
}

// LoRA B of one site: logical [adapter * kExperts + expert][row of the weight image][kRank], rows
// 16-interleaved as the weights.
constexpr float kLoraUnit = 0.25f;
__host__ __device__ inline float lora_b_value(uint64_t seed, size_t matrix, int rows, int row,
                                              int r) {
  return random_value(seed, (matrix * rows + row) * kRank + r, kLoraUnit);
}

// Images [matrix][64-row block][step][64 rows x 16, 32B swizzle]; `steps` 2 for gate_up (gate rows
// in step 0, up rows in step 1).
static __global__ void fill_lora_b(uint8_t* out, size_t matrices, int rows, int steps,
                                   uint64_t seed) {
  size_t blocks = matrices * (rows / 64);
  for (size_t i = blockIdx.x; i < blocks * steps; i += gridDim.x) {
    size_t block = i / steps;
    int step = i % steps;
    for (int e = threadIdx.x; e < 64 * kRank; e += blockDim.x) {
      int r = e % kRank, in = e / kRank, row = block % (rows / 64) * 64 + in;
      bool mine = steps == 1 || in % 16 / 8 == step;
      float v = mine ? lora_b_value(seed, block / (rows / 64), rows, row, r) : 0.0f;
      *reinterpret_cast<Bf16*>(out + i * 2048 + swizzled(in, r / 8, 32) + r % 8 * 2) =
          __float2bfloat16(v);
    }
  }
}

}  // namespace expert_layer
