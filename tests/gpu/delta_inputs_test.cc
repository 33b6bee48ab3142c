#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "gpu/twin.h"
#include "kernels/recurrence.h"

// What a delta net's recurrence reads, made by one launch, against a launch for each part of it.
namespace motley::gpu_tests {
namespace {

using kernels::DeltaInputs;
using kernels::cpu::Numbers;

constexpr std::int64_t head_width = 128;
constexpr std::int64_t taps = 4;

struct Sizes {
  std::int64_t key_heads = 2;
  std::int64_t value_heads = 4;
  std::int64_t keys() const { return key_heads * head_width; }
  std::int64_t channels() const { return 2 * keys() + value_heads * head_width; }
};

// Sequences of one step: their rows, which stay, and where each begins.
struct Steps {
  std::vector<std::int32_t> counts, starts;
};

// A layer's memory for some slots, and the arrays of a step. Two of them have the same numbers.
class Layer {
 public:
  Layer(const Sizes& sizes, DType kept, std::int64_t slots)
      : sizes_(sizes),
        kept_(kept),
        slot_stride_((kernels::convolution_log_rows + taps - 1) * sizes.channels()),
        memory_(static_cast<std::size_t>(slots * slot_stride_)) {
    Numbers numbers(3);
    const auto array = [&](std::int64_t count) {
      return Twin<float>(numbers.floats(count, -1, 1));
    };
    weight_ = array(sizes.channels() * taps);
    query_weight_ = array(head_width);
    key_weight_ = array(head_width);
    decay_ = Twin<float>(numbers.floats(sizes.value_heads, -2, 0));
    bias_ = array(sizes.value_heads);
  }

  // Runs the step; returns the results with all that is kept.
  std::vector<std::vector<std::byte>> run(const Steps& steps, std::uint64_t seed, bool together) {
    std::vector<std::int32_t> begins{0};
    std::vector<std::int32_t> positions, slots, anchors;
    std::int64_t longest = 0;
    for (std::size_t i = 0; i < steps.counts.size(); ++i) {
      begins.push_back(begins.back() + steps.counts[i]);
      for (std::int32_t r = 0; r < steps.counts[i]; ++r) positions.push_back(steps.starts[i] + r);
      slots.push_back(static_cast<std::int32_t>(steps.counts.size() - 1 - i));
      anchors.push_back(steps.starts[i] / 16 * 16);
      longest = std::max<std::int64_t>(longest, steps.counts[i]);
    }
    const Twin<std::int32_t> begin(begins), position(positions), slot(slots), anchor(anchors),
        certain(steps.counts);
    const std::int64_t rows = begins.back();
    Numbers numbers(seed);
    const TwinRows x(numbers, DType::f32, rows, sizes_.channels(), 8, {-3, 3});
    const TwinRows out(DType::f32, rows, sizes_.channels(), 4);
    const TwinRows a(numbers, DType::f32, rows, sizes_.value_heads, 0, {-4, 40});
    const TwinRows b(numbers, DType::f32, rows, sizes_.value_heads, 3, {-4, 4});
    const TwinRows g(DType::f32, rows, sizes_.value_heads, 1);
    const TwinRows beta(DType::f32, rows, sizes_.value_heads, 0);
    const auto floats = [](const TwinRows& of) { return reinterpret_cast<float*>(of.device()); };
    const auto norm = [&](const Twin<float>& weight, std::int64_t first) {
      float* const heads = floats(out) + first;
      return kernels::RmsNorm{.size = {rows, sizes_.key_heads, head_width},
                              .x = heads,
                              .x_stride = out.stride(),
                              .x_part_stride = head_width,
                              .weight = weight.device(),
                              .eps = 1e-6F / head_width,
                              .out = heads,
                              .out_stride = out.stride(),
                              .out_part_stride = head_width};
    };
    const DeltaInputs call{
        .convolution = {.channels = sizes_.channels(),
                        .taps = taps,
                        .weight = weight_.device(),
                        .silu = true,
                        .x = floats(x),
                        .x_stride = x.stride(),
                        .out = floats(out),
                        .out_stride = out.stride(),
                        .steps = {.rows = {.count = static_cast<std::int64_t>(steps.counts.size()),
                                           .seq_begin = begin.device(),
                                           .positions = position.device(),
                                           .rows = rows,
                                           .max_rows = longest},
                                  .slots = slot.device(),
                                  .anchors = anchor.device(),
                                  .certain = certain.device()},
                        .memory = {.inputs = memory_.device(),
                                   .history = history(),
                                   .type = kept_,
                                   .slot_stride = slot_stride_}},
        .queries = norm(query_weight_, 0),
        .keys = norm(key_weight_, sizes_.keys()),
        .gates = {.rows = rows,
                  .heads = sizes_.value_heads,
                  .decay = decay_.device(),
                  .bias = bias_.device(),
                  .a = floats(a),
                  .a_stride = a.stride(),
                  .b = floats(b),
                  .b_stride = b.stride(),
                  .g = floats(g),
                  .g_stride = g.stride(),
                  .beta = floats(beta),
                  .beta_stride = beta.stride()}};
    const kernels::RecurrenceTable& table = *device_table().recurrence;
    if (together) {
      EXPECT_TRUE(table.takes_delta_inputs(call));
      table.delta_inputs(call, default_stream());
    } else {
      table.convolve(call.convolution, default_stream());
      device_table().rms_norm(call.queries, default_stream());
      device_table().rms_norm(call.keys, default_stream());
      table.gates(call.gates, default_stream());
    }
    finish();
    EXPECT_TRUE(launches().ok());
    std::vector<std::byte> kept(memory_.size() * sizeof(float));
    EXPECT_EQ(cudaMemcpy(kept.data(), memory_.device(), kept.size(), cudaMemcpyDefault),
              cudaSuccess);
    return {out.read_device(), g.read_device(), beta.read_device(), std::move(kept)};
  }

 private:
  float* history() const {
    const std::int64_t log = kernels::convolution_log_rows * sizes_.channels();
    return memory_.device() + (kept_ == DType::bf16 ? log / 2 : log);
  }

  Sizes sizes_;
  DType kept_;
  std::int64_t slot_stride_;
  Twin<float> memory_;
  Twin<float> weight_, query_weight_, key_weight_, decay_, bias_;
};

// Steps of one row each, of rows that may be taken back, of prompts over several blocks of rows;
// sequences without rows; and more heads than a block has.
TEST(DeltaInputs, HaveTheBitsOfTheirParts) {
  const std::array sizes{Sizes{}, Sizes{.key_heads = 1, .value_heads = 1},
                         Sizes{.key_heads = 3, .value_heads = 6}};
  const std::vector<std::vector<std::int32_t>> counts = {{37, 0, 1, 5, 1200}, {1, 1, 1, 1, 1},
                                                         {1, 0, 1, 1, 1},     {8, 3, 1, 17, 2},
                                                         {1, 1, 1, 1, 1},     {9, 40, 16, 0, 1}};
  for (const Sizes& each : sizes) {
    for (const DType kept : {DType::f32, DType::bf16}) {
      Layer apart(each, kept, 5);
      Layer joined(each, kept, 5);
      std::vector<std::int32_t> starts(5, 0);
      for (std::size_t step = 0; step < counts.size(); ++step) {
        const Steps steps{.counts = counts[step], .starts = starts};
        for (std::size_t i = 0; i < starts.size(); ++i) starts[i] += counts[step][i];
        const auto wanted = apart.run(steps, 20 + step, false);
        const auto got = joined.run(steps, 20 + step, true);
        const std::string what =
            cat(each.key_heads, " and ", each.value_heads, " heads, ", name(kept), ", step ", step);
        EXPECT_TRUE(got[0] == wanted[0]) << what << ": queries, keys and values";
        EXPECT_TRUE(got[1] == wanted[1]) << what << ": decays";
        EXPECT_TRUE(got[2] == wanted[2]) << what << ": betas";
        EXPECT_TRUE(got[3] == wanted[3]) << what << ": what is kept";
      }
    }
  }
}

TEST(DeltaInputs, AreOfHeadsThatAWarpHolds) {
  const Twin<float> numbers(std::vector<float>(4096, 1.0F));
  const auto norm_of = [&](std::int64_t first) {
    float* const heads = numbers.device() + first;
    return kernels::RmsNorm{.size = {1, 1, 128},
                            .x = heads,
                            .x_stride = 384,
                            .x_part_stride = 128,
                            .weight = numbers.device(),
                            .out = heads,
                            .out_stride = 384,
                            .out_part_stride = 128};
  };
  const DeltaInputs call{.convolution = {.channels = 384,
                                         .taps = 4,
                                         .weight = numbers.device(),
                                         .x = numbers.device() + 1024,
                                         .x_stride = 384,
                                         .out = numbers.device(),
                                         .out_stride = 384},
                         .queries = norm_of(0),
                         .keys = norm_of(128)};
  const kernels::RecurrenceTable& table = *device_table().recurrence;
  EXPECT_TRUE(table.takes_delta_inputs(call));
  const auto takes_with = [&](auto change) {
    DeltaInputs other = call;
    change(other);
    return table.takes_delta_inputs(other);
  };
  EXPECT_FALSE(takes_with([](DeltaInputs& p) { p.convolution.taps = 3; }));
  EXPECT_FALSE(takes_with([](DeltaInputs& p) { p.convolution.channels = 380; }));
  EXPECT_FALSE(takes_with([](DeltaInputs& p) { p.queries.size.width = 64; }));
  EXPECT_FALSE(takes_with([&](DeltaInputs& p) { p.keys = norm_of(256); }));
  EXPECT_FALSE(takes_with([](DeltaInputs& p) { p.convolution.x = p.convolution.out; }));
  EXPECT_FALSE(takes_with([](DeltaInputs& p) { ++p.convolution.x; }));
  EXPECT_FALSE(takes_with([](DeltaInputs& p) { p.convolution.memory.slot_stride = 6; }));
}

}  // namespace
}  // namespace motley::gpu_tests
