#include "kernels/cuda/sampling/sampling.h"

#include <bit>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/number_types.h"
#include "base/system/thread_pool.h"
#include "gpu/device_kernels.h"
#include "gpu/device_memory.h"
#include "kernels/elementary.h"

// The device's tokens, counts and log-probabilities are the host's, bit for bit.
namespace motley::gpu_tests {
namespace {

using kernels::Sample;
using kernels::SampleChoice;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr std::int64_t tops = 6;

enum class Logits : std::uint8_t {
  normal,
  many_equal,
  all_equal,
  odd_numbers,
  far_apart,
  not_finite
};

std::string name(Logits kind) {
  constexpr const char* names[] = {"normal",      "many_equal", "all_equal",
                                   "odd_numbers", "far_apart",  "not_finite"};
  return names[static_cast<std::size_t>(kind)];
}

// Rows in which every kind of choice occurs, with gaps between rows of each table.
struct Step {
  Step(std::int64_t row_count, std::int64_t row_width, Logits kind, std::uint32_t seed)
      : rows(row_count),
        width(row_width),
        logits_stride(row_width + 5),
        mask_stride((row_width + 31) / 32 + 1),
        counts_stride(row_width + 3) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 2.5F);
    std::uniform_real_distribution<float> unit(0, 1);
    logits.resize(static_cast<std::size_t>(rows * logits_stride), 1e30F);
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t i = 0; i < width; ++i) {
        float logit = normal(random);
        if (kind == Logits::many_equal) logit = bf16::from(logit).to_float();
        if (kind == Logits::all_equal) logit = -1.25F;
        if (kind == Logits::far_apart) logit *= 40;
        if (kind == Logits::odd_numbers && unit(random) < 0.3F) {
          const float odd[] = {-infinity, -0.0F, 3e38F, 1e-40F};
          logit = odd[random() % 4];
        }
        // Two rows of three, in one number of the row; of a third all are minus infinity.
        if (kind == Logits::not_finite && row % 3 > 0 && i == row * 7919 % width)
          logit = row % 3 == 1 ? infinity : std::numeric_limits<float>::quiet_NaN();
        if (kind == Logits::not_finite && row % 9 == 3) logit = -infinity;
        logits[static_cast<std::size_t>(row * logits_stride + i)] = logit;
      }
    }
    masks.resize(static_cast<std::size_t>(2 * mask_stride));
    for (std::uint32_t& word : masks) word = static_cast<std::uint32_t>(random());
    counts.resize(static_cast<std::size_t>(rows * counts_stride));
    for (std::int32_t& count : counts)
      count = unit(random) < 0.9F ? 0 : static_cast<std::int32_t>(random() % 9);
    for (std::int32_t i = 0; i < 12; ++i) {
      bias_ids.push_back(static_cast<std::int32_t>(i * (width / 12 + 1) % width));
      biases.push_back(i % 3 == 0 ? -infinity : normal(random));
    }
    const auto biased = static_cast<std::int32_t>(std::min<std::int64_t>(width / 12, 12));
    for (std::int64_t row = 0; row < rows; ++row) {
      const bool penalised = row % 5 == 1;
      const auto named_begin = static_cast<std::int32_t>(named_ids.size());
      for (std::int32_t k = 0; k < (row % 4 == 2 ? 0 : row % 7 == 3 ? 128 : 5); ++k)
        named_ids.push_back(
            static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(width)));
      choices.push_back({
          .inverse_temperature = row % 4 == 0 ? 0 : 0.3F + 1.5F * unit(random),
          .top_k = row % 3 == 1 ? static_cast<std::int32_t>(1 + random() % 90) : 0,
          .top_p = row % 2 == 0 ? 1 : 0.2F + 0.79F * unit(random),
          .min_p = row % 7 == 2 ? 0.02F : 0,
          .repetition = penalised ? 1.3F : 1,
          .presence = penalised ? 0.4F : 0,
          .frequency = penalised ? 0.2F : 0,
          .counts_row = penalised ? static_cast<std::int32_t>(row) : -1,
          .mask_row = row % 6 == 3 ? static_cast<std::int32_t>(row % 2) : -1,
          .bias_begin = row % 8 == 5 ? biased / 2 : 0,
          .bias_end = row % 8 >= 5 ? biased : 0,
          .top_log_probabilities =
              static_cast<std::int32_t>(std::min<std::int64_t>(row % 4 * 2, width)) -
              (row % 8 == 0 ? 1 : 0),
          .named_begin = named_begin,
          .named_end = static_cast<std::int32_t>(named_ids.size()),
          .processed = row % 3 == 0,
          .ranked = row % 5 != 2,
          .seed = random(),
          .draw = random(),
      });
    }
  }

  std::int64_t rows;
  std::int64_t width;
  std::int64_t logits_stride;
  std::int64_t mask_stride;
  std::int64_t counts_stride;
  std::vector<float> logits;
  std::vector<SampleChoice> choices;
  std::vector<std::uint32_t> masks;
  std::vector<std::int32_t> counts;
  std::vector<std::int32_t> bias_ids;
  std::vector<float> biases;
  std::vector<std::int32_t> named_ids;
};

struct Answer {
  std::vector<std::int32_t> ids;
  std::vector<float> log_probabilities;
  std::vector<std::int32_t> ranks;
  std::vector<std::int32_t> top_ids;
  std::vector<float> top_log_probabilities;
  std::vector<float> named_log_probabilities;
  std::vector<std::int32_t> named_ranks;
  std::vector<std::int32_t> counts;
};

Sample sizes_of(const Step& step) {
  return {.rows = step.rows,
          .width = step.width,
          .logits_stride = step.logits_stride,
          .mask_stride = step.mask_stride,
          .counts_stride = step.counts_stride,
          .top_stride = tops};
}

Answer on_host(const Step& step) {
  static ThreadPool pool;
  const auto rows = static_cast<std::size_t>(step.rows);
  Answer answer{.ids = std::vector<std::int32_t>(rows, -9),
                .log_probabilities = std::vector<float>(rows, 9),
                .ranks = std::vector<std::int32_t>(rows, -9),
                .top_ids = std::vector<std::int32_t>(rows * tops, -9),
                .top_log_probabilities = std::vector<float>(rows * tops, 9),
                .named_log_probabilities = std::vector<float>(step.named_ids.size(), 9),
                .named_ranks = std::vector<std::int32_t>(step.named_ids.size(), -9),
                .counts = step.counts};
  const kernels::ElementaryTable& table = kernels::cpu_table();
  std::vector<std::byte> scratch(static_cast<std::size_t>(
      table.sample_scratch_bytes(step.rows, step.width, StreamHandle{&pool})));
  Sample params = sizes_of(step);
  params.logits = step.logits.data();
  params.choices = step.choices.data();
  params.masks = step.masks.data();
  params.counts = answer.counts.data();
  params.bias_ids = step.bias_ids.data();
  params.biases = step.biases.data();
  params.ids = answer.ids.data();
  params.log_probabilities = answer.log_probabilities.data();
  params.ranks = answer.ranks.data();
  params.top_ids = answer.top_ids.data();
  params.top_log_probabilities = answer.top_log_probabilities.data();
  params.named_ids = step.named_ids.data();
  params.named_log_probabilities = answer.named_log_probabilities.data();
  params.named_ranks = answer.named_ranks.data();
  params.scratch = scratch.data();
  table.sample(params, StreamHandle{&pool});
  return answer;
}

Answer on_device(const Step& step) {
  const auto rows = static_cast<std::size_t>(step.rows);
  const DeviceArray<float> logits(step.logits);
  const DeviceArray<SampleChoice> choices(step.choices);
  const DeviceArray<std::uint32_t> masks(step.masks);
  const DeviceArray<std::int32_t> counts(step.counts);
  const DeviceArray<std::int32_t> bias_ids(step.bias_ids);
  const DeviceArray<float> biases(step.biases);
  const DeviceArray<std::int32_t> ids(std::vector<std::int32_t>(rows, -9));
  const DeviceArray<float> log_probabilities(std::vector<float>(rows, 9));
  const DeviceArray<std::int32_t> ranks(std::vector<std::int32_t>(rows, -9));
  const DeviceArray<std::int32_t> top_ids(std::vector<std::int32_t>(rows * tops, -9));
  const DeviceArray<float> top_log_probabilities(std::vector<float>(rows * tops, 9));
  const DeviceArray<std::int32_t> named_ids(step.named_ids);
  const DeviceArray<float> named_log_probabilities(std::vector<float>(step.named_ids.size(), 9));
  const DeviceArray<std::int32_t> named_ranks(std::vector<std::int32_t>(step.named_ids.size(), -9));
  const DeviceArray<std::byte> scratch(static_cast<std::size_t>(
      kernels::cuda::sample_scratch_bytes(step.rows, step.width, default_stream())));
  Sample params = sizes_of(step);
  params.logits = logits.data();
  params.choices = choices.data();
  params.masks = masks.data();
  params.counts = counts.data();
  params.bias_ids = bias_ids.data();
  params.biases = biases.data();
  params.ids = ids.data();
  params.log_probabilities = log_probabilities.data();
  params.ranks = ranks.data();
  params.top_ids = top_ids.data();
  params.top_log_probabilities = top_log_probabilities.data();
  params.named_ids = named_ids.data();
  params.named_log_probabilities = named_log_probabilities.data();
  params.named_ranks = named_ranks.data();
  params.scratch = scratch.data();
  kernels::cuda::sample(params, default_stream());
  finish();
  return {ids.read(),
          log_probabilities.read(),
          ranks.read(),
          top_ids.read(),
          top_log_probabilities.read(),
          named_log_probabilities.read(),
          named_ranks.read(),
          counts.read()};
}

template <class T>
void expect_same_bits(const std::vector<T>& device, const std::vector<T>& host,
                      std::int64_t numbers_a_row, const char* what) {
  ASSERT_EQ(device.size(), host.size());
  for (std::size_t i = 0; i < host.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(device[i]), std::bit_cast<std::uint32_t>(host[i]))
        << what << " of row " << i / static_cast<std::size_t>(numbers_a_row) << ": device "
        << device[i] << ", host " << host[i];
  }
}

void expect_equal(const Step& step) {
  const Answer host = on_host(step);
  const Answer device = on_device(step);
  expect_same_bits(device.ids, host.ids, 1, "token");
  expect_same_bits(device.log_probabilities, host.log_probabilities, 1, "log-probability");
  expect_same_bits(device.ranks, host.ranks, 1, "rank");
  expect_same_bits(device.top_ids, host.top_ids, tops, "top token");
  expect_same_bits(device.top_log_probabilities, host.top_log_probabilities, tops,
                   "top log-probability");
  expect_same_bits(device.named_log_probabilities, host.named_log_probabilities, 1,
                   "named log-probability");
  expect_same_bits(device.named_ranks, host.named_ranks, 1, "named rank");
  expect_same_bits(device.counts, host.counts, step.counts_stride, "count");
}

TEST(GpuSample, ChoosesWhatTheHostChooses) {
  std::uint32_t seed = 1;
  for (const std::int64_t width : {1, 31, 1000, 32'003, 151'936}) {
    for (const Logits kind : {Logits::normal, Logits::many_equal, Logits::all_equal,
                              Logits::odd_numbers, Logits::far_apart, Logits::not_finite}) {
      SCOPED_TRACE(cat(name(kind), ", width ", width));
      expect_equal(Step(24, width, kind, seed++));
    }
  }
}

// One row is a cluster of eight blocks, a hundred and fifty are clusters of what a row needs.
TEST(GpuSample, ChoosesTheSameInClustersOfAnySize) {
  for (const std::int64_t rows : {1, 3, 20, 150}) {
    SCOPED_TRACE(cat(rows, " rows"));
    expect_equal(Step(rows, 20'001, Logits::many_equal, static_cast<std::uint32_t>(rows)));
  }
}

TEST(GpuSample, TakesScratchWhereRowsOutgrowSharedMemory) {
  const Step step(3, 700'001, Logits::many_equal, 5);
  EXPECT_GT(kernels::cuda::sample_scratch_bytes(step.rows, step.width, default_stream()), 0);
  expect_equal(step);
}

TEST(GpuSample, CountsPromptAndAnswer) {
  std::mt19937 random(3);
  constexpr std::int64_t width = 1000;
  std::vector<std::int32_t> tokens(5000);
  for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(random() % width);
  for (const std::int64_t prompt : {0, 4000, 5000}) {
    std::vector<std::int32_t> host(width, 7);
    kernels::CountTokens params{.width = width,
                                .counts = host.data(),
                                .tokens = tokens.data(),
                                .prompt = prompt,
                                .generated = 5000 - prompt};
    kernels::cpu_table().count_tokens(params, {});
    const DeviceArray<std::int32_t> counts(width);
    const DeviceArray<std::int32_t> device_tokens(tokens);
    params.counts = counts.data();
    params.tokens = device_tokens.data();
    kernels::cuda::count_tokens(params, default_stream());
    finish();
    EXPECT_EQ(counts.read(), host) << prompt;
  }
}

}  // namespace
}  // namespace motley::gpu_tests
