#include <cmath>
#include <cstddef>

#include "world.h"

namespace motley::bench::half_step {
namespace {

__host__ __device__ std::uint32_t hash(std::uint32_t seed, std::uint32_t at) {
  std::uint32_t x = at * 0x9E3779B1U + seed;
  x = (x ^ x >> 16) * 0x7FEB352DU;
  x = (x ^ x >> 15) * 0x846CA68BU;
  return x ^ x >> 16;
}
__device__ Bf16 bf16_number(const Numbers& n, int row, int column) {
  const std::uint32_t bits = hash(n.seed, static_cast<std::uint32_t>(row) * n.k + column);
  const float uniform = (static_cast<float>(bits >> 8) + 0.5F) * 0x1p-23F - 1.0F;
  return __float2bfloat16_rn(uniform * 1.7320508F * n.deviation);
}
__device__ std::uint32_t code(const Numbers& n, int row, int column) {
  return hash(n.seed, static_cast<std::uint32_t>(row) * n.k + column) >> 28;
}
__device__ float code_scale(const Numbers& n, int row, int group) {
  constexpr int group_size = Int4Experts::group;
  const std::uint32_t bits =
      hash(n.seed + 77, static_cast<std::uint32_t>(row) * (n.k / group_size) + group);
  return n.deviation / 4.63F * (0.75F + static_cast<float>(bits >> 8) * 0x1p-25F);
}
__device__ double number(const Numbers& n, int row, int column) {
  if (!n.is_int4) return static_cast<double>(__bfloat162float(bf16_number(n, row, column)));
  return (static_cast<double>(code(n, row, column)) - 8) *
         static_cast<double>(code_scale(n, row, column / Int4Experts::group));
}

// Row `at` of a row tile, in the matrix. A row tile of gate_up is 8 rows of gate and 8 of up.
__device__ int row_of(int row_tile, int at, bool gate_up) {
  if (!gate_up) return row_tile * tile + at;
  const int expert = row_tile / gate_up_tiles;
  return expert * 2 * inner + at / 8 * inner + row_tile % gate_up_tiles * 8 + at % 8;
}

struct Loop {
  std::size_t first = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  std::size_t step = std::size_t{gridDim.x} * blockDim.x;
};

__global__ void pack_tiles(Bf16* out, std::size_t count, Numbers n, bool gate_up) {
  const Loop loop;
  for (std::size_t i = loop.first; i < count; i += loop.step) {
    const int at = static_cast<int>(i % (tile * tile));
    const auto tile_at = i / (tile * tile);
    const int lane = at / 8;
    const int reg = at % 8 / 2;
    const int row =
        row_of(static_cast<int>(tile_at / (n.k / tile)), lane / 4 + 8 * (reg % 2), gate_up);
    const int column =
        static_cast<int>(tile_at % (n.k / tile)) * tile + 4 * (lane % 4) + 2 * (reg / 2) + at % 2;
    out[i] = bf16_number(n, row, column);
  }
}
__global__ void pack_units(Bf16* out, std::size_t count, Numbers n, int first_row) {
  const Loop loop;
  for (std::size_t i = loop.first; i < count; i += loop.step) {
    const int at = static_cast<int>(i % 256);  // 8 rows x 32 k
    const auto tile_at = static_cast<int>(i / 256);
    const int lane = at / 8;
    const int row = first_row + tile_at / (n.k / 32) * 8 + lane / 4;
    const int column = tile_at % (n.k / 32) * 32 + at % 8 / 4 * tile + 4 * (lane % 4) + at % 4;
    out[i] = bf16_number(n, row, column);
  }
}
__global__ void pack_int4(std::uint32_t* out, std::size_t count, Numbers n, bool gate_up) {
  using F = Int4Experts;
  const Loop loop;
  for (std::size_t i = loop.first; i < count; i += loop.step) {
    const int at = static_cast<int>(i % (F::group_bytes / 4));
    const auto group_at = i / (F::group_bytes / 4);
    const int row_tile = static_cast<int>(group_at / (n.k / F::group));
    const int group = static_cast<int>(group_at % (n.k / F::group));
    if (at >= F::group_codes / 4) {
      const float scale = code_scale(n, row_of(row_tile, at - F::group_codes / 4, gate_up), group);
      out[i] = __float_as_uint(scale);
      continue;
    }
    const int step = gate_up ? at / 128 * 4 + at % 4 : at / 32;
    const int lane = gate_up ? at % 128 / 4 : at % 32;
    std::uint32_t word = 0;
    for (int nibble = 0; nibble < 8; ++nibble) {
      const int reg = nibble % 4;
      const int row = row_of(row_tile, lane / 4 + 8 * (reg % 2), gate_up);
      const int column =
          group * F::group + step * tile + 4 * (lane % 4) + 2 * (reg / 2) + nibble / 4;
      word |= code(n, row, column) << 4 * nibble;
    }
    out[i] = word;
  }
}
__global__ void fill_plain(Bf16* out, std::size_t count, Numbers n) {
  const Loop loop;
  for (std::size_t i = loop.first; i < count; i += loop.step)
    out[i] = bf16_number(n, static_cast<int>(i / n.k), static_cast<int>(i % n.k));
}

constexpr int reference_threads = 256;
__global__ void multiply(double* y, Numbers n, int first, const double* x) {
  __shared__ double sums[reference_threads];
  const int row = first + static_cast<int>(blockIdx.x);
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < n.k; i += reference_threads)
    sum += number(n, row, i) * x[i];
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int i = 1; i < reference_threads; ++i) sum += sums[i];
  y[blockIdx.x] = sum;
}

constexpr int fill_blocks = 1056;
constexpr int fill_threads = 256;

class Maker {
 public:
  Maker(WeightSet& set, int number) : set_(set), number_(static_cast<std::uint32_t>(number)) {}

  Numbers numbers(std::uint32_t which, double gain, int k, bool is_int4 = false) const {
    return {(number_ * 16 + which) * 0x51ED2701U + 12345,
            static_cast<float>(gain / std::sqrt(static_cast<double>(k))), k, is_int4};
  }
  template <class T>
  T* room(std::size_t count) {
    T* data = nullptr;
    CHECK_CUDA(cudaMalloc(&data, count * sizeof(T)));
    set_.memory.push_back(data);
    return data;
  }
  const unsigned char* tiles(const Numbers& n, int rows, bool gate_up) {
    const std::size_t count = static_cast<std::size_t>(rows) * n.k;
    if (n.is_int4) {
      const std::size_t words = count / (tile * Int4Experts::group) * Int4Experts::group_bytes / 4;
      auto* const out = room<std::uint32_t>(words);
      pack_int4<<<fill_blocks, fill_threads>>>(out, words, n, gate_up);
      return reinterpret_cast<const unsigned char*>(out);
    }
    auto* const out = room<Bf16>(count);
    pack_tiles<<<fill_blocks, fill_threads>>>(out, count, n, gate_up);
    return reinterpret_cast<const unsigned char*>(out);
  }
  const unsigned char* units(const Numbers& n, int first_row, int rows) {
    const std::size_t count = static_cast<std::size_t>(rows) * n.k;
    auto* const out = room<Bf16>(count + 8);
    pack_units<<<fill_blocks, fill_threads>>>(out, count, n, first_row);
    return reinterpret_cast<const unsigned char*>(out);
  }
  const Bf16* plain(const Numbers& n, int rows) {
    const std::size_t count = static_cast<std::size_t>(rows) * n.k;
    auto* const out = room<Bf16>(count);
    fill_plain<<<fill_blocks, fill_threads>>>(out, count, n);
    return out;
  }
  // A norm's weights, around 1.
  const Bf16* norm(std::uint32_t which, std::vector<float>& kept) {
    std::vector<Bf16> values(hidden);
    kept.resize(hidden);
    for (int i = 0; i < hidden; ++i) {
      const std::uint32_t bits = hash(number_ * 16 + which, static_cast<std::uint32_t>(i));
      values[i] = __float2bfloat16_rn(0.75F + static_cast<float>(bits >> 8) * 0x1p-25F);
      kept[i] = __bfloat162float(values[i]);
    }
    Bf16* const out = on_device(values);
    set_.memory.push_back(out);
    return out;
  }

 private:
  WeightSet& set_;
  std::uint32_t number_;
};

}  // namespace

WeightSet make_weights(int number, ExpertFormat format, int blocks) {
  WeightSet set;
  Maker make(set, number);
  const bool is_int4 = format == ExpertFormat::int4;
  const ProjectionShare share(blocks);
  set.output = make.numbers(0, 1, attention);
  set.router = make.numbers(1, 1.5, hidden);
  set.gate_up = make.numbers(2, 1, hidden, is_int4);
  set.down = make.numbers(3, 2, inner, is_int4);
  set.projection = make.numbers(4, 1, hidden);
  set.packed = {
      .output = make.tiles(set.output, hidden, false),
      .router = make.plain(set.router, experts),
      .expert_norm = make.norm(5, set.expert_norm),
      .projection_norm = make.norm(6, set.projection_norm),
      .gate_up = make.tiles(set.gate_up, experts * 2 * inner, true),
      .down = make.tiles(set.down, experts * hidden, false),
      .projection_tiles = make.tiles(set.projection, share.tiles * blocks * tile, false),
      .projection_units = make.units(set.projection, share.tiles * blocks * tile, share.units * 8)};
  CHECK_CUDA(cudaDeviceSynchronize());
  return set;
}
void free_weights(WeightSet& set) {
  for (void* data : set.memory) CHECK_CUDA(cudaFree(data));
  set.memory.clear();
}

double expert_bytes(ExpertFormat format) {
  if (format == ExpertFormat::bf16) return 3.0 * inner * hidden * 2;
  return static_cast<double>(gate_up_tiles) * Int4Experts::gate_up_bytes +
         static_cast<double>(down_tiles) * Int4Experts::down_bytes;
}
double dense_bytes() { return 2.0 * hidden * (attention + experts + projected); }

std::vector<double> reference_product(const Numbers& matrix, int first, int count,
                                      const std::vector<double>& x) {
  double* const in = on_device(x);
  double* out = nullptr;
  CHECK_CUDA(cudaMalloc(&out, static_cast<std::size_t>(count) * sizeof *out));
  multiply<<<count, reference_threads>>>(out, matrix, first, in);
  CHECK_CUDA(cudaGetLastError());
  std::vector<double> y = from_device(out, static_cast<std::size_t>(count));
  CHECK_CUDA(cudaFree(in));
  CHECK_CUDA(cudaFree(out));
  return y;
}

}  // namespace motley::bench::half_step
