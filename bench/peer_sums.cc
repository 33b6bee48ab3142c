// Time of sums over ranks on GPUs: bench_peer_sums [RANKS [WIDTH]]. Microseconds of one of many in
// a captured graph, on GPUs 0 to RANKS - 1; ranks beyond share them. Over memory that GPUs address,
// and over NCCL where each rank has a GPU.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime_api.h>

#include "dist/nccl_library.h"
#include "dist/ranks_over.h"
#include "kernels/elementary.h"
#include "tensor/device/device.h"

namespace {

namespace dist = motley::dist;
namespace kernels = motley::kernels;
namespace tensor = motley::tensor;
using dist::Communicator;
using motley::DType;
using motley::Result;

template <class T>
T taken(Result<T> result) {
  if (!result.ok()) {
    std::printf("%s\n", result.error().message().c_str());
    std::exit(1);
  }
  return *std::move(result);
}
void check(const Result<void>& result) {
  if (result.ok()) return;
  std::printf("%s\n", result.error().message().c_str());
  std::exit(1);
}

constexpr int sums = 48;
constexpr int replays = 21;

struct Rank {
  int gpu = 0;
  std::unique_ptr<tensor::Device> device;
  std::shared_ptr<const kernels::ElementaryTable> kernels;
  std::unique_ptr<tensor::Stream> stream;
  tensor::Buffer memory;  // addends, sums, weights and normed rows
  std::unique_ptr<tensor::Graph> graph;
};

struct Case {
  const char* name;
  DType crosses = DType::f32;
  bool norm = false;
  bool joined = false;
};

struct Rows {
  std::int64_t rows;
  std::int64_t width;
};

kernels::AddAndNorm norm_call(const Rank& rank, const Rows& size) {
  auto* const a = reinterpret_cast<float*>(rank.memory.data());
  float* const b = a + size.rows * size.width;
  float* const weight = b + size.rows * size.width;
  return {.add = {.rows = size.rows,
                  .width = size.width,
                  .a = a,
                  .a_stride = size.width,
                  .b = b,
                  .b_stride = size.width,
                  .out = a,
                  .out_stride = size.width},
          .norm = {.size = {.rows = size.rows, .width = size.width},
                   .x = a,
                   .x_stride = size.width,
                   .weight = weight,
                   .out = weight + size.width,
                   .out_type = DType::bf16,
                   .out_stride = size.width}};
}

Result<void> queue(const Case& what, const Rows& size, const Rank& rank, Communicator& ranks) {
  const Communicator::Crossing crossing{.stream = rank.kernels->on(rank.stream->handle()),
                                        .type = what.crosses};
  const kernels::AddAndNorm call = norm_call(rank, size);
  if (what.joined) return ranks.sum_and_norm(call, Communicator::Part::own, crossing);
  auto* const b = const_cast<float*>(static_cast<const float*>(call.add.b));
  MOTLEY_TRY_VOID(ranks.all_reduce({b, static_cast<std::size_t>(size.rows * size.width)},
                                   Communicator::Part::own, crossing));
  if (what.norm) rank.kernels->add_and_norm(call, crossing.stream);
  return {};
}

void on_ranks(int ranks, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([&, rank] { body(rank); });
  for (std::thread& thread : threads) thread.join();
}

// Median us of one sum; negative: it does not fit.
double microseconds(const Case& what, const Rows& size, std::vector<Rank>& ranks,
                    dist::RankGroup& group) {
  if (what.joined && !group.rank(0).fits_norm(norm_call(ranks[0], size), what.crosses)) return -1;
  const int count = group.ranks();
  on_ranks(count, [&](int number) {
    Rank& rank = ranks[static_cast<std::size_t>(number)];
    rank.graph = taken(rank.stream->capture([&]() -> Result<void> {
      for (int i = 0; i < sums; ++i) MOTLEY_TRY_VOID(queue(what, size, rank, group.rank(number)));
      return kernels::cuda_launches(*rank.kernels);
    }));
  });
  std::vector<float> times;
  on_ranks(count, [&](int number) {
    Rank& rank = ranks[static_cast<std::size_t>(number)];
    cudaSetDevice(rank.gpu);
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    auto* const stream = static_cast<cudaStream_t>(rank.stream->handle().native);
    for (int replay = 0; replay < replays; ++replay) {
      // So that all begin together.
      check(group.rank(number).barrier(rank.kernels->on(rank.stream->handle())));
      cudaEventRecord(begin, stream);
      check(rank.graph->launch(*rank.stream));
      cudaEventRecord(end, stream);
      check(rank.stream->synchronize());
      float ms = 0;
      cudaEventElapsedTime(&ms, begin, end);
      if (number == 0 && replay > 0) times.push_back(ms * 1000 / sums);
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
  });
  check(group.rank(0).status());
  // The group outlives what has recorded its calls.
  for (Rank& rank : ranks) rank.graph.reset();
  std::ranges::sort(times);
  return static_cast<double>(times[times.size() / 2]);
}

constexpr std::int64_t row_counts[] = {1, 8, 32, 64, 128, 256, 1024, 8192};

void print_rows(dist::RanksOver over, std::vector<Rank>& ranks, std::int64_t width) {
  std::vector<int> gpus;
  for (const Rank& rank : ranks) gpus.push_back(rank.gpu);
  auto made = dist::create_gpu_ranks({.gpus = gpus, .over = over});
  if (!made.ok()) {
    std::printf("%s: %s\n", std::string(dist::name(over)).c_str(), made.error().message().c_str());
    return;
  }
  dist::RankGroup& group = *made->group;
  const std::vector<Case> cases{{"f32"},
                                {"bf16", DType::bf16},
                                {"f32, then norm", DType::f32, true},
                                {"f32 with norm", DType::f32, true, true},
                                {"bf16, then norm", DType::bf16, true},
                                {"bf16 with norm", DType::bf16, true, true}};
  for (const Case& what : cases) {
    const bool fits = group.rank(0).fits_norm(norm_call(ranks[0], {1, width}), what.crosses);
    if (what.joined && !fits) continue;
    std::printf("%-6s%-18s", std::string(dist::name(over)).c_str(), what.name);
    for (const std::int64_t rows : row_counts) {
      const double us = microseconds(what, {rows, width}, ranks, group);
      us < 0 ? std::printf("%9s", "-") : std::printf("%9.1f", us);
      std::fflush(stdout);
    }
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 2;
  const std::int64_t width = argc > 2 ? std::atoi(argv[2]) : 2048;
  constexpr std::int64_t max_rows = 8192;
  int gpus = 0;
  // As the program does with several ranks.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  dist::set_nccl_environment();
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0 || count < 2 || width < 4) {
    std::printf("bench_peer_sums [RANKS [WIDTH]]: on GPUs, from 2 ranks on\n");
    return 1;
  }
  std::vector<Rank> ranks(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    Rank& rank = ranks[static_cast<std::size_t>(i)];
    rank.gpu = i % gpus;
    rank.device =
        taken(tensor::open_device({.kind = tensor::DeviceChoice::Kind::cuda, .index = rank.gpu}));
    rank.kernels = taken(kernels::cuda_table(rank.gpu));
    rank.stream = taken(rank.device->create_stream());
    const auto bytes = static_cast<std::size_t>((3 * max_rows + 1) * width) * sizeof(float);
    rank.memory = taken(rank.device->allocate(bytes));
    check(rank.stream->fill(rank.memory.data(), std::byte{0}, bytes));
    check(rank.stream->synchronize());
  }
  std::printf("%d ranks on %d GPUs, %s; rows of %lld; us of one of %d in a graph\n", count,
              std::min(count, gpus), ranks[0].device->description().c_str(),
              static_cast<long long>(width), sums);
  std::printf("%-24s", "rows");
  for (const std::int64_t rows : row_counts) std::printf("%9lld", static_cast<long long>(rows));
  std::printf("\n");
  for (const dist::RanksOver over : {dist::RanksOver::peers, dist::RanksOver::nccl})
    print_rows(over, ranks, width);
  return 0;
}
