// Time of one sampled step on a GPU: bench_gpu_sampling [vocabulary]. Logits are cold: steps take
// turns over more memory than the second-level cache holds.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include <cuda_runtime.h>

#include "graph_time.h"
#include "kernels/cuda/sampling/sampling.h"

namespace {

using motley::bench::on_device;
using motley::kernels::Sample;
using motley::kernels::SampleChoice;

struct Case {
  const char* name;
  SampleChoice choice;
  bool flat = false;  // all logits equal: the most ties that a row can have
};

// Median microseconds of a launch in a graph of `turns` of them.
double microseconds(const Case& what, std::int64_t rows, std::int64_t width) {
  constexpr int turns = 12;
  constexpr int repeats = 15;
  const std::int64_t copies = std::max<std::int64_t>(
      2, std::int64_t{192} * 1024 * 1024 / (rows * width * static_cast<int>(sizeof(float))) + 1);
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 2.5F);
  std::vector<float> logits(static_cast<std::size_t>(rows * width));
  // Eight rows, over and over.
  const auto different = std::min(logits.size(), static_cast<std::size_t>(8 * width));
  for (std::size_t i = 0; i < logits.size(); ++i) {
    logits[i] = what.flat ? 1.0F : i < different ? normal(random) : logits[i - different];
  }
  std::vector<float*> inputs;
  for (std::int64_t copy = 0; copy < std::min<std::int64_t>(copies, turns); ++copy)
    inputs.push_back(on_device(logits));
  std::vector<SampleChoice> choices(static_cast<std::size_t>(rows), what.choice);
  for (std::int64_t row = 0; row < rows; ++row) {
    SampleChoice& choice = choices[static_cast<std::size_t>(row)];
    choice.seed = static_cast<std::uint64_t>(row);
    if (choice.counts_row >= 0) choice.counts_row = static_cast<std::int32_t>(row);
    if (choice.mask_row >= 0) choice.mask_row = static_cast<std::int32_t>(row);
  }
  const auto places = static_cast<std::size_t>(rows);
  const std::int64_t mask_stride = (width + 31) / 32;
  Sample params{.rows = rows,
                .width = width,
                .logits_stride = width,
                .choices = on_device(choices),
                .masks = on_device(std::vector<std::uint32_t>(
                    places * static_cast<std::size_t>(mask_stride), 0x77777777U)),
                .mask_stride = mask_stride,
                .counts = on_device(std::vector<std::int32_t>(logits.size(), 0)),
                .counts_stride = width,
                .ids = on_device(std::vector<std::int32_t>(places)),
                .log_probabilities = on_device(std::vector<float>(places)),
                .top_stride = 20,
                .top_ids = on_device(std::vector<std::int32_t>(places * 20)),
                .top_log_probabilities = on_device(std::vector<float>(places * 20))};
  if (motley::kernels::cuda::sample_scratch_bytes(rows, width, motley::bench::default_stream()) > 0)
    params.scratch = on_device(std::vector<float>(logits.size()));

  params.logits = inputs[0];
  // Loads the kernels before they are captured.
  motley::kernels::cuda::sample(params, motley::bench::default_stream());
  CHECK_CUDA(cudaDeviceSynchronize());
  const double median =
      motley::bench::graph_time(turns, repeats, [&](int turn, motley::StreamHandle stream) {
        params.logits = inputs[static_cast<std::size_t>(turn) % inputs.size()];
        motley::kernels::cuda::sample(params, stream);
      });
  for (float* input : inputs) CHECK_CUDA(cudaFree(input));
  for (const void* data :
       {static_cast<const void*>(params.choices), static_cast<const void*>(params.masks),
        static_cast<const void*>(params.counts), static_cast<const void*>(params.ids),
        static_cast<const void*>(params.log_probabilities),
        static_cast<const void*>(params.top_ids),
        static_cast<const void*>(params.top_log_probabilities),
        static_cast<const void*>(params.scratch)})
    CHECK_CUDA(cudaFree(const_cast<void*>(data)));
  return median;
}

}  // namespace

int main(int count, char** words) {
  const std::int64_t width = count > 1 ? std::atoll(words[1]) : 151'936;
  const Case cases[] = {
      {"greedy", {}},
      {"greedy, 5 top log-probabilities", {.top_log_probabilities = 5}},
      {"temperature", {.inverse_temperature = 1}},
      {"top-k 50", {.inverse_temperature = 1, .top_k = 50}},
      {"top-p 0.9", {.inverse_temperature = 1, .top_p = 0.9F}},
      {"top-k, top-p, min-p, mask, penalties",
       {.inverse_temperature = 1.4F,
        .top_k = 50,
        .top_p = 0.9F,
        .min_p = 0.01F,
        .repetition = 1.1F,
        .counts_row = 0,
        .mask_row = 0}},
      {"top-k 50, all logits equal", {.inverse_temperature = 1, .top_k = 50}, true},
      {"top-p 0.9, all logits equal", {.inverse_temperature = 1, .top_p = 0.9F}, true},
  };
  const std::int64_t batches[] = {1, 8, 32, 64, 128, 256};
  std::printf("vocabulary %lld; microseconds a step, by rows\n", static_cast<long long>(width));
  std::printf("%-38s", "");
  for (const std::int64_t rows : batches) std::printf(" %8lld", static_cast<long long>(rows));
  std::printf("\n");
  for (const Case& what : cases) {
    std::printf("%-38s", what.name);
    for (const std::int64_t rows : batches) std::printf(" %8.1f", microseconds(what, rows, width));
    std::printf("\n");
    std::fflush(stdout);
  }
  std::printf("%-38s", "reading the logits at 4.8 TB/s");
  for (const std::int64_t rows : batches)
    std::printf(" %8.1f", static_cast<double>(rows * width) * 4 / 4.8e6);
  std::printf("\n");
}
