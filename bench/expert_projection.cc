// One projection of a 30B-A3B's experts on the CPU: K 2048 -> N 768, 128 experts, 8 for each token,
// uniform random routing; a line for each format and number of tokens. Weights are those of several
// layers, so that no cache holds them. Cases take turns, and memory's ceiling is measured in each
// round: bytes of weights read a second, as packed, as a share of it (the median of the rounds'
// shares), operations a second, the time beside bf16's, and the best time beside llama.cpp's.
//   build/release/bench/bench_expert_projection [threads [rounds [part of a format's name [set]]]]

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "base/number_types.h"
#include "base/system/clock.h"
#include "base/system/thread_pool.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/instruction_set.h"
#include "memory_ceiling.h"

namespace motley::bench {
namespace {

constexpr std::int64_t inputs = 2048;
constexpr std::int64_t outputs = 768;
constexpr std::int64_t experts = 128;
constexpr std::int64_t experts_per_token = 8;
constexpr std::int64_t bytes_of_all_layers = std::int64_t{600} << 20;  // at least
constexpr int routings = 12;

using kernels::InputRounding;
using kernels::WeightKind;
using kernels::WeightView;

std::uint32_t random_bits() {
  static std::uint64_t state = 88172645463325252U;
  state = state * 6364136223846793005U + 1442695040888963407U;
  return static_cast<std::uint32_t>(state >> 33);
}

struct Tokens {
  std::int64_t count;
  // Milliseconds of llama.cpp and ik_llama.cpp for what is nearest; 0 where nothing is.
  struct Times {
    double llama;
    double ik;
  };
  Times bf16, int4, mxfp4, int8;
};
// cpu-anchors of the reference: another machine, 2 cores of Zen 4, 28-53 GB/s, 2026-11-21. q4_K for
// int4, q8_0 for int8.
constexpr Tokens token_counts[] = {
    {1, {0.71, 0.76}, {0.20, 0.19}, {0, 0.20}, {0, 0.38}},
    {8, {4.9, 5.0}, {1.52, 1.17}, {0, 1.40}, {0, 2.49}},
    {32, {11.9, 10.7}, {5.5, 3.0}, {0, 4.4}, {0, 6.4}},
    {128, {28.8, 14.4}, {19.7, 9.2}, {0, 10.7}, {0, 12.9}},
    {512, {105, 35.2}, {79.5, 33.9}, {0, 33.3}, {0, 37.4}},
};

struct Format {
  const char* name = nullptr;
  WeightKind kind = WeightKind::bf16;
  std::int64_t block_rows = 1;
  std::int64_t block_columns = 0;
  DType scale_type = DType::f32;
  bool zero_points = false;
  bool ordered = false;
  InputRounding inputs = {};
  Tokens::Times Tokens::* beside = nullptr;
};

constexpr InputRounding i8_row{.scales = InputRounding::Scales::row, .type = DType::i8};
constexpr InputRounding f8_row{.scales = InputRounding::Scales::row, .type = DType::f8_e4m3};
constexpr InputRounding f8_block{
    .scales = InputRounding::Scales::row_block, .type = DType::f8_e4m3, .columns = 128};

constexpr Format formats[] = {
    {.name = "bf16", .kind = WeightKind::bf16, .beside = &Tokens::bf16},
    {.name = "int4 g128", .kind = WeightKind::int4, .block_columns = 128, .beside = &Tokens::int4},
    {.name = "int4 g32 f16",
     .kind = WeightKind::int4,
     .block_columns = 32,
     .scale_type = DType::f16,
     .beside = &Tokens::int4},
    {.name = "int4 g128 zeros",
     .kind = WeightKind::int4,
     .block_columns = 128,
     .scale_type = DType::f16,
     .zero_points = true,
     .beside = &Tokens::int4},
    {.name = "int4 g128 act-order",
     .kind = WeightKind::int4,
     .block_columns = 128,
     .scale_type = DType::f16,
     .zero_points = true,
     .ordered = true,
     .beside = &Tokens::int4},
    {.name = "int4 g32 act-order",
     .kind = WeightKind::int4,
     .block_columns = 32,
     .scale_type = DType::f16,
     .ordered = true,
     .beside = &Tokens::int4},
    {.name = "int4 g32 act-order zeros",
     .kind = WeightKind::int4,
     .block_columns = 32,
     .scale_type = DType::f16,
     .zero_points = true,
     .ordered = true,
     .beside = &Tokens::int4},
    {.name = "MXFP4",
     .kind = WeightKind::f4_e2m1,
     .block_columns = 32,
     .scale_type = DType::f8_e8m0,
     .beside = &Tokens::mxfp4},
    {.name = "NVFP4",
     .kind = WeightKind::f4_e2m1,
     .block_columns = 16,
     .scale_type = DType::f8_e4m3},
    {.name = "int8 channel",
     .kind = WeightKind::i8,
     .block_columns = inputs,
     .scale_type = DType::bf16,
     .beside = &Tokens::int8},
    {.name = "int8 g128 zeros",
     .kind = WeightKind::i8,
     .block_columns = 128,
     .scale_type = DType::f16,
     .zero_points = true,
     .beside = &Tokens::int8},
    {.name = "W8A8 int8",
     .kind = WeightKind::i8,
     .block_columns = inputs,
     .inputs = i8_row,
     .beside = &Tokens::int8},
    {.name = "FP8 block", .kind = WeightKind::f8_e4m3, .block_rows = 128, .block_columns = 128},
    {.name = "FP8 block W8A8",
     .kind = WeightKind::f8_e4m3,
     .block_rows = 128,
     .block_columns = 128,
     .inputs = f8_block},
    {.name = "FP8 channel",
     .kind = WeightKind::f8_e4m3,
     .block_columns = inputs,
     .scale_type = DType::bf16},
    {.name = "FP8 channel W8A8",
     .kind = WeightKind::f8_e4m3,
     .block_columns = inputs,
     .scale_type = DType::bf16,
     .inputs = f8_row},
    {.name = "MXFP8",
     .kind = WeightKind::f8_e4m3,
     .block_columns = 32,
     .scale_type = DType::f8_e8m0},
};

// Codes of several layers of experts, which formats share: those of bf16, and bytes that are no NaN
// of FP8.
std::vector<std::uint8_t> make_codes(bool bf16_numbers) {
  constexpr std::int64_t bytes_of_a_layer = experts * outputs * inputs * 2;
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(
      (bytes_of_all_layers + bytes_of_a_layer - 1) / bytes_of_a_layer * bytes_of_a_layer));
  for (std::size_t i = 0; i < codes.size(); i += 2) {
    if (bf16_numbers) {
      const float value = static_cast<float>(random_bits() % 2001) * 1e-3F - 1.0F;
      const bf16 narrow = bf16::from(value);
      std::memcpy(&codes[i], &narrow, 2);
    } else {
      const std::uint32_t bits = random_bits();
      codes[i] = static_cast<std::uint8_t>(bits % 127);
      codes[i + 1] = static_cast<std::uint8_t>(128 + (bits >> 8) % 127);
    }
  }
  return codes;
}

// Experts of several layers, one after the other.
class Weights {
 public:
  Weights(const Format& format, const std::vector<std::uint8_t>& codes)
      : format_(format), codes_(codes) {
    view_ = {.kind = format.kind,
             .scale_type = format.scale_type,
             .out = outputs,
             .in = inputs,
             .block_rows = format.block_rows,
             .block_columns = format.block_columns,
             .inputs = format.inputs};
    code_bytes_ = outputs * inputs * kernels::code_bits(format.kind) / 8;
    layers_ = static_cast<std::int64_t>(codes.size()) / (experts * code_bytes_);
    if (format.block_columns == 0) return;
    scales_an_expert_ = (outputs + format.block_rows - 1) / format.block_rows * view_.groups();
    scale_bytes_ = scales_an_expert_ * bits(format.scale_type) / 8;
    const auto count = static_cast<std::size_t>(layers_ * experts * scales_an_expert_);
    for (std::size_t i = 0; i < count; ++i)
      put_scale(0.01F + 1e-3F * static_cast<float>(random_bits() % 100));
    for (std::size_t i = 0; format.zero_points && i < count; ++i)
      zeros_.push_back(static_cast<std::uint8_t>(random_bits() % 16));
    if (!format.ordered) return;
    input_order_.resize(static_cast<std::size_t>(inputs));
    std::iota(input_order_.begin(), input_order_.end(), 0);
    for (std::size_t k = input_order_.size(); k > 1; --k)
      std::swap(input_order_[k - 1], input_order_[random_bits() % k]);
  }

  const Format& format() const { return format_; }
  std::int64_t layers() const { return layers_; }
  // As packed.
  std::int64_t bytes_an_expert() const {
    return code_bytes_ + scale_bytes_ + (format_.zero_points ? scales_an_expert_ : 0);
  }
  WeightView expert(std::int64_t layer, std::int64_t e) const {
    const std::int64_t at = layer * experts + e;
    WeightView view = view_;
    view.data = codes_.data() + at * code_bytes_;
    if (format_.block_columns > 0) view.scales = scales_.data() + at * scale_bytes_;
    if (format_.zero_points) view.zero_points = zeros_.data() + at * scales_an_expert_;
    if (format_.ordered) view.input_order = input_order_.data();
    return view;
  }

 private:
  void put_scale(float value) {
    std::uint32_t code = 0;
    switch (format_.scale_type) {
      case DType::f16:
        code = f16::from(value).bits;
        break;
      case DType::bf16:
        code = bf16::from(value).bits;
        break;
      case DType::f8_e4m3:
        code = f8_e4m3::from(value).bits;
        break;
      case DType::f8_e8m0:
        code = f8_e8m0::from_rounded_up(value).bits;
        break;
      default:
        std::memcpy(&code, &value, sizeof code);
    }
    for (int byte = 0; byte < bits(format_.scale_type) / 8; ++byte)
      scales_.push_back(static_cast<std::uint8_t>(code >> 8 * byte));
  }

  const Format& format_;
  const std::vector<std::uint8_t>& codes_;
  std::vector<std::uint8_t> scales_;
  std::vector<std::uint8_t> zeros_;
  std::vector<std::int32_t> input_order_;
  WeightView view_;
  std::int64_t layers_ = 0;
  std::int64_t code_bytes_ = 0;
  std::int64_t scale_bytes_ = 0;
  std::int64_t scales_an_expert_ = 0;
};

// One format at one number of tokens.
class Case {
 public:
  Case(const Weights& weights, const Tokens& tokens) : weights_(weights), tokens_(tokens) {
    x_.resize(static_cast<std::size_t>(tokens.count * inputs));
    for (bf16& value : x_) value = bf16::from(static_cast<float>(random_bits() % 2001) * 1e-3F - 1);
    y_.resize(static_cast<std::size_t>(pairs() * outputs));
    for (Routing& routing : routings_) route(routing);
  }

  // Seconds of each of a round's runs.
  void run_round(ThreadPool& pool, double ceiling) {
    const int runs = tokens_.count <= 32 ? routings : 3;
    for (int run = 0; run < runs; ++run) {
      const Routing& routing = routings_[next_++ % routings];
      const auto start = std::chrono::steady_clock::now();
      multiply(routing, pool);
      const double time = seconds(std::chrono::steady_clock::now() - start);
      times_.push_back(time);
      const auto bytes = static_cast<double>(routing.experts_used * weights_.bytes_an_expert());
      shares_.push_back(bytes / time / ceiling);
      speeds_.push_back(bytes / time);
    }
  }
  void forget() {
    times_.clear();
    shares_.clear();
    speeds_.clear();
  }

  // `bf16` is of as many tokens.
  void print(const Case& bf16) const {
    const double best = *std::ranges::min_element(times_);
    const double operations = 2.0 * static_cast<double>(pairs() * outputs * inputs);
    const Tokens::Times Tokens::* const beside = weights_.format().beside;
    const Tokens::Times others = beside == nullptr ? Tokens::Times() : tokens_.*beside;
    std::printf(
        "%-24s %4d  best %8.3f ms, median %8.3f ms (bf16 x %.2f)  %5.1f GB/s (%3.0f %% of DRAM)  "
        "%6.1f GFLOP/s",
        weights_.format().name, static_cast<int>(tokens_.count), best * 1e3, median(times_) * 1e3,
        median(times_) / median(bf16.times_), median(speeds_) * 1e-9, 100 * median(shares_),
        operations / median(times_) * 1e-9);
    if (others.llama != 0)
      std::printf("  llama.cpp %6.2f ms (best x %.2f)", others.llama, best * 1e3 / others.llama);
    if (others.ik != 0)
      std::printf("  ik %5.2f ms (best x %.2f)", others.ik, best * 1e3 / others.ik);
    std::printf("\n");
  }

 private:
  struct Routing {
    std::int64_t layer = 0;
    std::int64_t experts_used = 0;
    std::vector<std::vector<std::int32_t>> rows;  // of each expert
  };
  struct Task {
    std::int64_t expert;
    std::int64_t out_begin;
    std::int64_t first;  // row of y
  };

  static double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
  }
  std::int64_t pairs() const { return tokens_.count * experts_per_token; }

  void route(Routing& routing) {
    routing.layer = random_bits() % static_cast<std::uint32_t>(weights_.layers());
    routing.rows.resize(experts);
    for (std::int64_t token = 0; token < tokens_.count; ++token) {
      std::vector<bool> taken(experts, false);
      for (int slot = 0; slot < experts_per_token;) {
        const std::size_t e = random_bits() % experts;
        if (taken[e]) continue;
        taken[e] = true;
        routing.rows[e].push_back(static_cast<std::int32_t>(token));
        ++slot;
      }
    }
    for (const auto& rows : routing.rows) routing.experts_used += rows.empty() ? 0 : 1;
  }

  void multiply(const Routing& routing, ThreadPool& pool) {
    const std::int64_t width = tokens_.count <= 8 ? 64 : 128;
    std::int64_t place = 0;
    tasks_.clear();
    for (std::int64_t e = 0; e < experts; ++e) {
      const auto& rows = routing.rows[static_cast<std::size_t>(e)];
      if (rows.empty()) continue;
      for (std::int64_t o = 0; o < outputs; o += width) tasks_.push_back({e, o, place});
      place += static_cast<std::int64_t>(rows.size());
    }
    pool.for_tasks(static_cast<std::int64_t>(tasks_.size()), [&](std::int64_t at) {
      const Task& task = tasks_[static_cast<std::size_t>(at)];
      const auto& rows = routing.rows[static_cast<std::size_t>(task.expert)];
      kernels::cpu::gemm_tile({.x = x_.data(),
                               .x_type = DType::bf16,
                               .x_stride = inputs,
                               .x_rows = rows.data(),
                               .rows = static_cast<std::int64_t>(rows.size()),
                               .w = weights_.expert(routing.layer, task.expert),
                               .out_begin = task.out_begin,
                               .out_end = std::min(task.out_begin + width, outputs),
                               .y = y_.data() + task.first * outputs + task.out_begin,
                               .y_stride = outputs,
                               .exact = false});
    });
  }

  const Weights& weights_;
  const Tokens& tokens_;
  std::vector<bf16> x_;
  std::vector<float> y_;
  std::vector<Routing> routings_ = std::vector<Routing>(routings);
  std::vector<Task> tasks_;
  std::size_t next_ = 0;
  std::vector<double> times_;
  std::vector<double> shares_;
  std::vector<double> speeds_;
};

int number_at(int argc, char** argv, int at, int otherwise) {
  int number = otherwise;
  if (argc > at) {
    const std::string_view text = argv[at];
    std::from_chars(text.data(), text.data() + text.size(), number);
  }
  return number;
}

int run(int argc, char** argv) {
  ThreadPool pool({.threads = number_at(argc, argv, 1, 0)});
  const int rounds = number_at(argc, argv, 2, 9);
  MemoryCeiling memory(pool);
  const auto sets = kernels::cpu::available_instruction_sets();
  const auto chosen = std::ranges::find(sets, argc > 4 ? argv[4] : kernels::cpu::name(sets.back()),
                                        [](auto each) { return kernels::cpu::name(each); });
  if (chosen == sets.end()) {
    std::printf("this machine has no %s\n", argv[4]);
    return 1;
  }
  const kernels::cpu::UseInstructionSet use(*chosen);
  const auto set = kernels::cpu::name(*chosen);
  std::printf("%d threads, %.*s, DRAM reads %.1f GB/s (best of 9 over 1 GiB), %d rounds\n",
              pool.size(), static_cast<int>(set.size()), set.data(), memory.measure(9) * 1e-9,
              rounds);
  std::printf(
      "llama.cpp and ik: the same shape on another machine (2 cores of Zen 4, 28-53 GB/s)\n\n");
  const std::string_view wanted = argc > 3 ? argv[3] : "";
  const std::vector<std::uint8_t> bf16_codes = make_codes(true);
  const std::vector<std::uint8_t> codes = make_codes(false);
  std::vector<Weights> all;
  for (const Format& format : formats) {
    const bool bf16 = format.kind == WeightKind::bf16;
    if (bf16 || std::string_view(format.name).find(wanted) != std::string_view::npos)
      all.emplace_back(format, bf16 ? bf16_codes : codes);
  }
  std::vector<Case> cases;
  for (const Weights& weights : all) {
    for (const Tokens& tokens : token_counts) cases.emplace_back(weights, tokens);
  }
  for (int round = 0; round <= rounds; ++round) {
    for (Case& each : cases) {
      each.run_round(pool, memory.measure(2));
      // The first round warms up.
      if (round == 0) each.forget();
    }
  }
  for (std::size_t i = 0; i < cases.size(); ++i) cases[i].print(cases[i % std::size(token_counts)]);
  return 0;
}

}  // namespace
}  // namespace motley::bench

int main(int argc, char** argv) { return motley::bench::run(argc, argv); }
