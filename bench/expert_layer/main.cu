// Times the expert layer of Qwen3-30B-A3B on one GPU; README.md says what it prints.
//   bench_expert_layer ceilings|plan
//   bench_expert_layer bench|sweep FORMAT ADAPTERS TOKENS...
#include <algorithm>
#include <cstring>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "peers.h"
#include "world.h"

namespace expert_layer_bench {
namespace {

constexpr int layers = 16;  // of a timed graph: each has its own routing and inputs
constexpr int weight_sets = 4;
constexpr double bytes_per_us = 4.3e6;
constexpr double flop_per_us = 745e6;

struct Timing {
  int replays;
  int layers = expert_layer_bench::layers;  // of the graph
  int pause_ms = 0;
};

double measure(const Batch& batch, const std::vector<Weights>& sets, const Adapters* adapters,
               const GroupedTiles& tiles, const Timing& timing) {
  const auto launch = [&](int i, motley::StreamHandle stream) {
    const GroupedExperts g =
        batch.params(i, sets[static_cast<std::size_t>(i) % sets.size()], adapters);
    run_grouped_experts(g, tiles, stream);
  };
  return motley::bench::graph_time(timing.layers, timing.replays, launch, timing.pause_ms);
}

struct Format {
  ExpertFormat weights;
  bool codes = false;  // of inputs, too
};
std::optional<Format> parse_format(std::string_view name) {
  constexpr std::pair<std::string_view, Format> names[] = {
      {"bf16", {ExpertFormat::bf16}},
      {"int4", {ExpertFormat::int4}},
      {"int4g32", {ExpertFormat::int4_fine}},
      {"int4z", {ExpertFormat::int4_any}},
      {"int4zg32", {ExpertFormat::int4_any_fine}},
      {"int8", {ExpertFormat::int8}},
      {"int8zg32", {ExpertFormat::int8_any_fine}},
      {"w8a8", {ExpertFormat::int8, true}},
      {"fp8", {ExpertFormat::fp8}},
      {"fp8g32", {ExpertFormat::fp8_fine}},
      {"mxfp8", {ExpertFormat::mxfp8}},
      {"fp8a8", {ExpertFormat::fp8, true}},
      {"mxfp4", {ExpertFormat::mxfp4}},
      {"nvfp4", {ExpertFormat::nvfp4}}};
  for (const auto& [known, format] : names)
    if (known == name) return format;
  return {};
}

std::string name_of(const GroupedTiles& t) {
  std::ostringstream name;
  constexpr const char* gathers[] = {"box", "copy", "perm"};
  name << count_rows(t.rows) << "x" << t.width << " " << gathers[static_cast<int>(t.gather)]
       << (t.sort_inside ? " in" : "") << (t.sum_inside ? " sum" : "");
  return name.str();
}

// All cuts that can serve the batch, but for tiles that would stay all but empty, or be cut too
// often to be worth a line.
std::vector<GroupedTiles> sweep_of(const GroupedExperts& g) {
  const std::int64_t pairs = g.tokens * g.experts_per_token;
  std::vector<GroupedTiles> all;
  for (const GroupedTiles& tiles : all_grouped_tiles) {
    const bool too_wide = tiles.tall() && pairs < 512;
    const bool too_narrow = tiles.width * std::int64_t{512} < pairs && tiles.width < 128;
    if (grouped_supports(tiles, g) && !too_wide && !too_narrow) all.push_back(tiles);
  }
  return all;
}

void print_line(const Batch& batch, const std::vector<Weights>& sets, const Adapters* adapters,
                const GroupedTiles& tiles, bool again) {
  const Timing timing{.replays = batch.tokens >= 2048 ? 5 : 15};
  const double us = measure(batch, sets, adapters, tiles, timing);
  const double second = again ? measure(batch, sets, adapters, tiles, timing) : us;
  const double live = batch.live_experts();
  const double pairs =
      static_cast<double>(batch.tokens) * top_k * measured->shape.experts / measured->routed;
  const double flop = pairs * 6.0 * measured->shape.hidden * measured->shape.intermediate;
  const double added = adapters != nullptr ? batch.adapter_bytes(*adapters) : 0;
  const double bytes = live * bytes_of_expert(sets[0].packed) + added +
                       2.0 * static_cast<double>(batch.tokens) * measured->shape.hidden * 2;
  const double floor = std::max(bytes / bytes_per_us, flop / flop_per_us);
  const bool bf16 = sets[0].packed.format == ExpertFormat::bf16;
  const int count = adapters != nullptr ? adapters->kind.count : 0;
  std::printf("%5lld %-24s %4d %5.1f %8.1f %8.1f %6.0f %6.1f %7.1f %5.2f %7.1f\n",
              static_cast<long long>(batch.tokens), name_of(tiles).c_str(), count, live, us, second,
              bytes / us * 1e-3, flop / us * 1e-6, floor, us / floor,
              measured == &qwen ? peer_us(batch.tokens, bf16, count) : 0);
  if (again && batch.tokens >= 2048) {  // the clock falls under sustained load
    const double burst =
        measure(batch, sets, adapters, tiles, {.replays = 9, .layers = 2, .pause_ms = 30});
    std::printf("      two layers after 30 ms of idleness: %.1f us, %.1f TFLOP/s\n", burst,
                flop / burst * 1e-6);
  }
  std::fflush(stdout);
}

__global__ void read_all(const uint4* p, std::size_t n, std::uint32_t* out) {
  std::uint32_t sum = 0;
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
       i + 3 * stride < n; i += 4 * stride) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint4 v = __ldcs(p + i + j * stride);
      sum ^= v.x ^ v.y ^ v.z ^ v.w;
    }
  }
  if (sum == 0x12345678) *out = sum;
}

void ceilings() {
  const std::size_t bytes = std::size_t{8} << 30;
  const Memory memory(bytes);
  const Memory out(16);
  fill_random(memory.data(), bytes / 2, 1.0F, 9);
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  CHECK_CUDA(cudaEventCreate(&begin));
  CHECK_CUDA(cudaEventCreate(&end));
  float best = 1e9F;
  for (int r = 0; r < 6; ++r) {
    CHECK_CUDA(cudaEventRecord(begin));
    read_all<<<132 * 16, 512>>>(memory.data<uint4>(), bytes / 16, out.data<std::uint32_t>());
    CHECK_CUDA(cudaEventRecord(end));
    CHECK_CUDA(cudaEventSynchronize(end));
    float ms = 0;
    CHECK_CUDA(cudaEventElapsedTime(&ms, begin, end));
    best = std::min(best, ms);
  }
  std::printf("read of 8 GiB: %.2f TB/s\n", static_cast<double>(bytes) / best * 1e-9);
}

// us of a layer's plan, and of the sort of tokens by label that a step makes once.
void plans() {
  std::printf("  pairs labels    plan us    labels' sort us\n");
  for (const std::int64_t tokens : {8, 512, 8192}) {
    for (const int labels : {0, 4, 512}) {
      PlannedBatch batch(tokens, layers, labels);
      const double plan = motley::bench::graph_time(
          layers, 15, [&](int i, auto stream) { plan_experts(batch.params(i), stream); });
      const double sort =
          labels == 0 ? 0 : motley::bench::graph_time(layers, 15, [&](int, auto stream) {
            batch.sort_labels(stream);
          });
      std::printf("%7lld %6d %10.1f %10.1f\n", static_cast<long long>(tokens * top_k), labels, plan,
                  sort);
    }
  }
}

// "0", "4", "32:outer", "4:mixed" (ranks 8 to 64), "4:fp8"; more than one word together.
AdapterKind parse_adapters(const std::string& text) {
  AdapterKind kind;
  kind.count = std::atoi(text.c_str());
  kind.f8 = text.find(":fp8") != std::string::npos;
  kind.shared_outer = text.find(":outer") != std::string::npos;
  kind.only_first = text.find(":first") != std::string::npos;
  kind.only_second = text.find(":second") != std::string::npos;
  if (text.find(":mixed") != std::string::npos) kind.ranks = {8, 16, 32, 64};
  return kind;
}

int run(int argc, char** argv) {
  cudaDeviceProp device{};
  CHECK_CUDA(cudaGetDeviceProperties(&device, 0));
  if (argc >= 2 && std::strcmp(argv[1], "ceilings") == 0) {
    std::printf("%s, %d multiprocessors\n", device.name, device.multiProcessorCount);
    ceilings();
    return 0;
  }
  if (argc >= 2 && std::strcmp(argv[1], "plan") == 0) {
    plans();
    return 0;
  }
  if (argc < 5) {
    std::printf(
        "usage: bench_expert_layer ceilings | plan | bench|sweep FORMAT ADAPTERS TOKENS...\n");
    return 2;
  }
  const bool sweep = std::strcmp(argv[1], "sweep") == 0;
  std::string format = argv[2];
  constexpr std::string_view deepseek_prefix = "dsv3:";
  if (format.starts_with(deepseek_prefix)) {
    measured = &deepseek;
    format.erase(0, deepseek_prefix.size());
  }
  const std::optional<Format> wanted = parse_format(format);
  if (!wanted) {
    std::printf("no format %s\n", format.c_str());
    return 2;
  }
  std::vector<Weights> sets;
  for (int s = 0; s < weight_sets; ++s) {
    sets.push_back(
        make_weights(wanted->weights, wanted->codes, 1000 + 10 * static_cast<std::uint64_t>(s)));
  }
  const AdapterKind kind = parse_adapters(argv[3]);
  std::optional<Adapters> adapters;
  if (kind.count > 0) adapters = make_adapters(kind, 77);
  const Adapters* const used = adapters ? &*adapters : nullptr;
  std::printf(
      "%s, adapters %s\n    T tiles                    adap  live       us    again   GB/s "
      "TFLOP/s   floor     x    vLLM\n",
      argv[2], argv[3]);
  for (int i = 4; i < argc; ++i) {
    const std::int64_t tokens = std::atoll(argv[i]);
    const Batch batch = make_batch(tokens, layers, used, static_cast<std::uint64_t>(tokens) + 5);
    const GroupedExperts g = batch.params(0, sets[0], used);
    if (!sweep) {
      print_line(batch, sets, used, choose_grouped_tiles(g), true);
      continue;
    }
    for (const GroupedTiles& tiles : sweep_of(g)) print_line(batch, sets, used, tiles, false);
  }
  return 0;
}

}  // namespace
}  // namespace expert_layer_bench

int main(int argc, char** argv) { return expert_layer_bench::run(argc, argv); }
