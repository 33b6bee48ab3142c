// Times of a recurrence's kernels on a GPU, one layer of Qwen3.5-35B in bf16 compute mode:
// bench_recurrent_state. Decoding is compared with plain passes over the same states, prompts with
// bench/fla_delta_rule.py.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include <cuda_runtime.h>

#include "graph_time.h"
#include "kernels/cuda/recurrence/fast.h"
#include "kernels/recurrence.h"

namespace {

using motley::StreamHandle;
using motley::bench::default_stream;
using motley::bench::graph_time;
using motley::bench::on_device;
using motley::kernels::Recur;
using motley::kernels::state_log_rows;
using motley::kernels::state_page;
using motley::kernels::cuda::DecodeForm;
using motley::kernels::cuda::FastForms;
using motley::kernels::cuda::PromptForm;

constexpr std::int64_t width = 128;  // of keys and of values
constexpr std::int64_t key_heads = 16;
constexpr std::int64_t value_heads = 32;

// Reads and writes every state once, as the usual form does for each row.
__global__ void read_and_write(float4* states, std::int64_t count, bool write) {
  const std::int64_t at = std::int64_t{blockIdx.x} * 1024 + threadIdx.x;
  float4 numbers[4];
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (at + i * 256 >= count) return;
    numbers[i] = states[at + i * 256];
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum += numbers[i].x + numbers[i].y + numbers[i].z + numbers[i].w;
    numbers[i].x *= 0.5F;
    if (write) states[at + i * 256] = numbers[i];
  }
  if (sum == 12345.678F) states[at].y = sum;
}

struct Sequence {
  std::int64_t anchor = 0;
  std::int64_t start = 0;
  std::int64_t count = 0;
  std::int64_t certain = 0;
};

// Steps over slots of one layer: the same sequences in each, in slots of their own, so that states
// come from memory. What is kept is zero; no kernel's time depends on the numbers.
class Steps {
 public:
  Steps(const std::vector<Sequence>& sequences, int steps) : steps_(steps) {
    std::vector<std::int32_t> begin = {0}, positions, anchors, certain;
    for (const Sequence& each : sequences) {
      for (std::int64_t i = 0; i < each.count; ++i)
        positions.push_back(static_cast<std::int32_t>(each.start + i));
      begin.push_back(static_cast<std::int32_t>(positions.size()));
      anchors.push_back(static_cast<std::int32_t>(each.anchor));
      certain.push_back(static_cast<std::int32_t>(each.certain));
      p_.steps.rows.max_rows = std::max(p_.steps.rows.max_rows, each.count);
    }
    p_.steps.rows.least_rows = sequences.front().count;
    const auto count = static_cast<std::int64_t>(sequences.size());
    std::vector<std::int32_t> slots;
    for (std::int64_t i = 0; i < count * steps; ++i) slots.push_back(static_cast<std::int32_t>(i));
    const auto rows = static_cast<std::int64_t>(positions.size());
    p_.steps.rows.count = count;
    p_.steps.rows.rows = rows;
    p_.steps.rows.seq_begin = keep(on_device(begin));
    p_.steps.rows.positions = keep(on_device(positions));
    p_.steps.slots = keep(on_device(slots));
    p_.steps.anchors = keep(on_device(anchors));
    p_.steps.certain = keep(on_device(certain));

    std::mt19937 random(7);
    const auto numbers = [&](std::int64_t size, float least, float most) {
      std::uniform_real_distribution<float> number(least, most);
      std::vector<float> all(static_cast<std::size_t>(size));
      for (float& each : all) each = number(random);
      return keep(on_device(all));
    };
    const float unit = std::sqrt(3 / static_cast<float>(width));  // keys of about length one
    p_.key_heads = key_heads;
    p_.value_heads = value_heads;
    p_.key_width = p_.value_width = width;
    p_.q_stride = p_.k_stride = key_heads * width;
    p_.v_stride = p_.out_stride = value_heads * width;
    p_.g_stride = p_.beta_stride = value_heads;
    p_.q = numbers(rows * p_.q_stride, -unit, unit);
    p_.k = numbers(rows * p_.k_stride, -unit, unit);
    p_.v = numbers(rows * p_.v_stride, -1, 1);
    p_.g = numbers(rows * value_heads, -0.3F, 0);
    p_.beta = numbers(rows * value_heads, 0, 1);
    p_.out = zeros(rows * p_.out_stride);
    p_.exact = false;

    const std::int64_t anchor = value_heads * width * width;
    const std::int64_t keys = state_log_rows * key_heads * width / 2;
    const std::int64_t updates = state_log_rows * value_heads * width;
    const std::int64_t scalars = state_log_rows * value_heads;
    const std::int64_t stride = anchor + keys + updates + 2 * scalars;
    float* const memory = zeros(stride * count * steps);
    p_.memory = {.anchors = memory,
                 .keys = memory + anchor,
                 .key_type = motley::DType::bf16,
                 .updates = memory + anchor + keys,
                 .decays = memory + anchor + keys + updates,
                 .betas = memory + anchor + keys + updates + scalars,
                 .slot_stride = stride};
  }
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;
  ~Steps() {
    for (void* const memory : memory_) cudaFree(memory);
  }

  // Step `number` of those.
  Recur step(int number) const {
    Recur p = p_;
    p.steps.slots += number % steps_ * p.steps.rows.count;
    return p;
  }

 private:
  template <class T>
  T* keep(T* memory) {
    memory_.push_back(memory);
    return memory;
  }
  float* zeros(std::int64_t count) {
    float* data = nullptr;
    CHECK_CUDA(cudaMalloc(&data, static_cast<std::size_t>(count) * sizeof(float)));
    CHECK_CUDA(cudaMemset(data, 0, static_cast<std::size_t>(count) * sizeof(float)));
    return keep(data);
  }

  int steps_;
  Recur p_{};
  std::vector<void*> memory_;
};

// Kernels are loaded before they are captured.
template <class Launch>
double loaded_time(int launches, Launch launch) {
  launch(0, default_stream());
  CHECK_CUDA(cudaDeviceSynchronize());
  return graph_time(launches, 15, launch);
}
double time_of(const Steps& steps, int launches, const FastForms& forms) {
  return loaded_time(launches, [&](int i, StreamHandle stream) {
    motley::kernels::cuda::recur_fast(steps.step(i), stream, forms);
  });
}

// Logs of every length, and folds as often as they come.
void measure_decoding() {
  std::printf("%-9s %-5s %8s %8s %8s | %8s %8s %8s %8s | %s\n", "sequences", "rows", "us", "read",
              "r+w", "helped", "loose", "halves", "whole", "of r+w");
  for (const int sequences : {1, 2, 4, 8, 16, 64, 256}) {
    const int turns = std::max(2, 64 / sequences);
    const std::int64_t vec4s = sequences * value_heads * width * width / 4;
    float4* states = nullptr;
    const auto bytes = static_cast<std::size_t>(vec4s * turns) * sizeof(float4);
    CHECK_CUDA(cudaMalloc(&states, bytes));
    CHECK_CUDA(cudaMemset(states, 0, bytes));
    const auto pass = [&](bool write) {
      return loaded_time(turns * 2, [&](int i, StreamHandle stream) {
        read_and_write<<<static_cast<unsigned>((vec4s + 1023) / 1024), 256, 0,
                         static_cast<cudaStream_t>(stream.native)>>>(states + i % turns * vec4s,
                                                                     vec4s, write);
      });
    };
    const double read = pass(false), both = pass(true);
    CHECK_CUDA(cudaFree(states));
    for (const std::int64_t rows : {1, 4}) {
      std::vector<Sequence> all;
      for (int i = 0; i < sequences; ++i)
        all.push_back(
            {.anchor = 160, .start = 160 + i * 7 % state_page, .count = rows, .certain = 1});
      const Steps steps(all, turns);
      const double us = time_of(steps, turns * 2, {});
      std::printf("%-9d %-5d %8.2f %8.2f %8.2f |", sequences, static_cast<int>(rows), us, read,
                  both);
      for (const auto form :
           {DecodeForm::helped, DecodeForm::loose, DecodeForm::halves, DecodeForm::whole})
        std::printf(" %8.2f", time_of(steps, turns * 2, {.decode = form}));
      std::printf(" | %.2f\n", us / both);
    }
  }
}

void measure_prompts() {
  std::printf("\n%-9s %-5s %8s %8s %8s %8s, us\n", "sequences", "rows", "chosen", "narrow", "wide",
              "as short");
  for (const auto& [sequences, rows] :
       {std::pair{1, 16}, {1, 64}, {1, 1024}, {2, 1024}, {8, 1024}, {1, 8192}, {4, 2048}}) {
    const Steps steps(std::vector<Sequence>(static_cast<std::size_t>(sequences),
                                            {.count = rows, .certain = rows}),
                      2);
    std::printf("%-9d %-5d %8.1f", sequences, rows, time_of(steps, 4, {}));
    for (const auto form : {PromptForm::narrow, PromptForm::wide, PromptForm::as_short})
      std::printf(" %8.1f", time_of(steps, 4, {.prompt = form}));
    std::printf("\n");
  }
}

}  // namespace

int main() {
  measure_decoding();
  measure_prompts();
  return 0;
}
