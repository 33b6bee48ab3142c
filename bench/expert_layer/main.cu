// Checks and times the expert layer prototype.
//   expert_layer ceilings | check | bench [passes]
#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <string>

#include "host.h"
#include "reference.h"

using namespace expert_layer;

constexpr int kInstances = 16;  // layers in a timed graph: each has its own routing and inputs
constexpr int kSets = 4;        // weight sets they rotate through

template <class T>
static T* device_alloc(size_t n) {
  T* p = nullptr;
  CHECK_CUDA(cudaMalloc(&p, n * sizeof(T)));
  return p;
}

struct WeightSet {
  WeightSeeds seeds;
  void *gate_up, *down;
  KernelMaps maps;
};

static WeightSet make_weights(Format format, uint64_t seed) {
  WeightSet w{};
  w.seeds = {format, seed, seed + 1};
  size_t n1 = static_cast<size_t>(kExperts) * kGateUpRows * kHidden;
  size_t n2 = static_cast<size_t>(kExperts) * kHidden * kInner;
  if (format == Format::kBf16) {
    w.gate_up = device_alloc<Bf16>(n1), w.down = device_alloc<Bf16>(n2);
    fill_random<<<1056, 256>>>(static_cast<Bf16*>(w.gate_up), n1, seed, kWeightUnit);
    fill_random<<<1056, 256>>>(static_cast<Bf16*>(w.down), n2, seed + 1, kWeightUnit);
    w.maps.gate_up =
        make_map(w.gate_up, static_cast<uint64_t>(kExperts) * kGateUpRows, kHidden, 128);
    w.maps.gate_up_64 =
        make_map(w.gate_up, static_cast<uint64_t>(kExperts) * kGateUpRows, kHidden, 64);
    w.maps.down_64 = make_map(w.down, static_cast<uint64_t>(kExperts) * kHidden, kInner, 64);
    w.maps.down = make_map(w.down, static_cast<uint64_t>(kExperts) * kHidden, kInner, 128);
  } else {
    w.gate_up = device_alloc<uint8_t>(n1 / 8192 * kBlobBytes);
    w.down = device_alloc<uint8_t>(n2 / 8192 * kBlobBytes);
    fill_int4<<<1056, 256>>>(static_cast<uint8_t*>(w.gate_up), kGateUpRows, kHidden, seed);
    fill_int4<<<1056, 256>>>(static_cast<uint8_t*>(w.down), kHidden, kInner, seed + 1);
    // the maps stay unread
  }
  CHECK_CUDA(cudaDeviceSynchronize());
  return w;
}

// Adapters of one batch, shared by all weight sets.
constexpr int kAdapters = 4;
constexpr float kLoraScale = 0.5f;
struct Adapters {
  AdapterSeeds seeds;
  Bf16 *gate_up_a, *down_a;
  uint8_t *gate_up_b, *down_b;
};

static Adapters make_adapters() {
  Adapters a{};
  a.seeds = {-1, kLoraScale, 901, 902, 903, 904};
  size_t matrices = static_cast<size_t>(kAdapters) * kExperts;
  size_t n1 = matrices * 2 * kRank * kHidden, n2 = matrices * kRank * kInner;
  a.gate_up_a = device_alloc<Bf16>(n1), a.down_a = device_alloc<Bf16>(n2);
  fill_random<<<1056, 256>>>(a.gate_up_a, n1, a.seeds.gate_up_a, kWeightUnit);
  fill_random<<<1056, 256>>>(a.down_a, n2, a.seeds.down_a, kWeightUnit);
  a.gate_up_b = device_alloc<uint8_t>(matrices * kGateUpRows / 64 * 2 * 2048);
  a.down_b = device_alloc<uint8_t>(matrices * kHidden / 64 * 2048);
  fill_lora_b<<<1056, 256>>>(a.gate_up_b, matrices, kGateUpRows, 2, a.seeds.gate_up_b);
  fill_lora_b<<<1056, 256>>>(a.down_b, matrices, kHidden, 1, a.seeds.down_b);
  CHECK_CUDA(cudaDeviceSynchronize());
  return a;
}
static Adapters g_adapters;

// Adapter of a token: all tokens have one when timing; when checking, one in adapters + 1 has none.
static bool g_base_rows = false;
static int adapter_of(int token, int adapters) {
  return g_base_rows ? (token + 1) % (adapters + 1) - 1 : token % adapters;
}

// Everything of one T: inputs of every instance, buffers shared by all.
struct Problem {
  int tokens, pairs;
  std::vector<std::vector<int>> experts;  // [instance][pairs]
  std::vector<std::vector<float>> gains;
  std::vector<int*> d_experts;
  std::vector<float*> d_gains;
  Bf16 *x, *act, *partial, *out, *x_sorted;  // x: [instance][tokens, kHidden]
  uint64_t x_seed;
  Plan plan;
  int *flags, flag_count;  // two runs of counters: successive layers take turns
  int act_rows;
  int* adapter_of;
  Bf16 *gate_up_rank, *down_rank;
};

static Problem make_problem(int tokens, uint64_t seed) {
  Problem q{};
  q.tokens = tokens, q.pairs = tokens * kTopK, q.x_seed = seed * 31 + 7;
  std::mt19937_64 random(seed);
  std::vector<int> order(kExperts);
  for (int i = 0; i < kExperts; i++) order[i] = i;
  int at = kExperts;  // T = 1: successive instances take disjoint experts
  for (int n = 0; n < kInstances; n++) {
    std::vector<int> e(q.pairs);
    std::vector<float> g(q.pairs);
    for (int t = 0; t < tokens; t++) {
      if (tokens > 1 || at + kTopK > kExperts)
        std::shuffle(order.begin(), order.end(), random), at = 0;
      double sum = 0;
      for (int j = 0; j < kTopK; j++) {
        e[t * kTopK + j] = order[at + j];
        g[t * kTopK + j] = 0.05f + random() % 1000 / 1000.0f;
        sum += g[t * kTopK + j];
      }
      for (int j = 0; j < kTopK; j++) g[t * kTopK + j] /= sum;
      at += kTopK;
      if (tokens > 1) at = kExperts;
    }
    q.experts.push_back(e), q.gains.push_back(g);
    q.d_experts.push_back(device_alloc<int>(q.pairs)),
        q.d_gains.push_back(device_alloc<float>(q.pairs));
    CHECK_CUDA(cudaMemcpy(q.d_experts[n], e.data(), q.pairs * 4, cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemcpy(q.d_gains[n], g.data(), q.pairs * 4, cudaMemcpyHostToDevice));
  }
  size_t x_count = static_cast<size_t>(kInstances) * tokens * kHidden;
  q.x = device_alloc<Bf16>(x_count);
  fill_random<<<1056, 256>>>(q.x, x_count, q.x_seed, kInputUnit);
  q.act_rows = q.pairs + 256;
  q.act = device_alloc<Bf16>(static_cast<size_t>(q.act_rows) * kInner);
  q.partial = device_alloc<Bf16>(static_cast<size_t>(q.pairs) * kHidden);
  q.out = device_alloc<Bf16>(static_cast<size_t>(tokens) * kHidden);
  q.plan.segments = device_alloc<Segment>(q.pairs);
  q.plan.segment_count = device_alloc<int>(1);
  q.plan.token_of = device_alloc<int>(q.pairs);
  q.plan.position_of = device_alloc<int>(q.pairs);
  q.plan.block_counts = device_alloc<int>((q.pairs / 1024 + 1) * kExperts);
  q.x_sorted = device_alloc<Bf16>(static_cast<size_t>(q.act_rows) * kHidden);
  q.adapter_of = device_alloc<int>(tokens);
  q.gate_up_rank = device_alloc<Bf16>(q.pairs * 2 * kRank),
  q.down_rank = device_alloc<Bf16>(q.pairs * kRank);
  q.flag_count = 4 + 3 * q.pairs + tokens * (kHidden / 64) + q.pairs / kPermuteBlock + 1;
  q.flags = device_alloc<int>(2 * q.flag_count);
  CHECK_CUDA(cudaDeviceSynchronize());
  return q;
}

static void free_problem(Problem& q) {
  for (int n = 0; n < kInstances; n++) cudaFree(q.d_experts[n]), cudaFree(q.d_gains[n]);
  for (void* p : {static_cast<void*>(q.x), static_cast<void*>(q.act), static_cast<void*>(q.partial),
                  static_cast<void*>(q.out), static_cast<void*>(q.plan.segments),
                  static_cast<void*>(q.plan.segment_count), static_cast<void*>(q.plan.token_of),
                  static_cast<void*>(q.plan.position_of), static_cast<void*>(q.plan.block_counts),
                  static_cast<void*>(q.flags), static_cast<void*>(q.adapter_of),
                  static_cast<void*>(q.gate_up_rank), static_cast<void*>(q.down_rank),
                  static_cast<void*>(q.x_sorted)})
    CHECK_CUDA(cudaFree(p));
}

static LayerParams params_of(const Problem& q, const WeightSet& w, int instance) {
  LayerParams p{};
  p.tokens = q.tokens, p.pairs = q.pairs;
  p.x = q.x + static_cast<size_t>(instance) * q.tokens * kHidden;
  p.expert_ids = q.d_experts[instance], p.pair_gain = q.d_gains[instance];
  p.gate_up = static_cast<const uint8_t*>(w.gate_up), p.down = static_cast<const uint8_t*>(w.down);
  p.act = q.act, p.partial = q.partial, p.out = q.out;
  p.plan = q.plan, p.x_sorted = q.x_sorted;
  int* flags = q.flags + instance % 2 * q.flag_count;
  p.next_flags = q.flags + (instance + 1) % 2 * q.flag_count, p.flag_count = q.flag_count;
  p.plan.next_item = flags;
  p.plan.segment_done = flags + 4;
  p.plan.token_done = p.plan.segment_done + q.pairs;
  p.plan.permuted = p.plan.token_done + q.tokens * (kHidden / 64);
  int* rank_flags = p.plan.permuted + q.pairs / kPermuteBlock + 1;
  p.lora = {q.adapter_of,   kLoraScale,  g_adapters.gate_up_b, g_adapters.down_b,
            q.gate_up_rank, q.down_rank, rank_flags,           rank_flags + q.pairs};
  return p;
}

static void set_act_maps(WeightSet& w, const Problem& q) {
  w.maps.act = make_map(q.act, q.act_rows, kInner, 8);
  w.maps.act_wide = make_map(q.act, q.act_rows, kInner, 64);
  uint64_t matrices = static_cast<uint64_t>(kAdapters) * kExperts;
  w.maps.lora_gate_up_a = make_map(g_adapters.gate_up_a, matrices * 2 * kRank, kHidden, 2 * kRank);
  w.maps.lora_down_a = make_map(g_adapters.down_a, matrices * kRank, kInner, kRank);
  w.maps.x[0] = make_map(q.x_sorted, q.act_rows, kHidden, 8);
  w.maps.x[1] = make_map(q.x_sorted, q.act_rows, kHidden, 64);
}

static void set_adapters(const Config& c, Problem& q) {
  std::vector<int> of(q.tokens, -1);
  if (c.adapters > 0)
    for (int t = 0; t < q.tokens; t++) of[t] = adapter_of(t, c.adapters);
  CHECK_CUDA(cudaMemcpy(q.adapter_of, of.data(), q.tokens * 4, cudaMemcpyHostToDevice));
}

static float to_float(uint16_t bits) {
  uint32_t v = static_cast<uint32_t>(bits) << 16;
  float f;
  std::memcpy(&f, &v, 4);
  return f;
}

static int g_failures = 0, g_multiprocessors = 132;

static std::string name_of(const Config& c) {
  char s[96];
  std::snprintf(s, sizeof s, "%s %s%s M%d N%d x%d w%d%s a%d",
                c.format == Format::kBf16 ? "bf16" : "int4", c.whole_layer ? "whole" : "split",
                c.combine_inline ? "+sum" : "", c.split ? 64 : c.blocks * 128, c.max_width,
                c.blocks_per_sm, std::min(c.window, 999),
                c.in_turn  ? "t"
                : c.gather ? "g"
                           : "",
                c.adapters);
  return s;
}

// Relative norm of the error over 8 sampled tokens x 32 columns; a poison left anywhere in `out`
// fails too.
static void check(const Config& c, Problem& q, WeightSet& w, int instance) {
  std::vector<uint16_t> out(static_cast<size_t>(q.tokens) * kHidden);
  CHECK_CUDA(cudaMemset(q.act, 0xFF, static_cast<size_t>(q.act_rows) * kInner * 2));
  CHECK_CUDA(cudaMemset(q.partial, 0xFF, static_cast<size_t>(q.pairs) * kHidden * 2));
  CHECK_CUDA(cudaMemset(q.out, 0xFF, out.size() * 2));
  CHECK_CUDA(cudaMemset(q.x_sorted, 0xFF, static_cast<size_t>(q.act_rows) * kHidden * 2));
  CHECK_CUDA(cudaMemset(q.flags, 0, 2 * q.flag_count * 4));
  set_act_maps(w, q);
  g_base_rows = true;
  set_adapters(c, q);
  launch_layer(c, params_of(q, w, instance), w.maps, g_multiprocessors, nullptr);
  CHECK_CUDA(cudaDeviceSynchronize());
  CHECK_CUDA(cudaMemcpy(out.data(), q.out, out.size() * 2, cudaMemcpyDeviceToHost));
  bool poison = false;
  for (uint16_t v : out) poison = poison || std::isnan(to_float(v));
  int samples = std::min(q.tokens, 8);
  std::vector<double> error(samples), norm(samples);
  std::vector<std::thread> threads;
  for (int s = 0; s < samples; s++)
    threads.emplace_back([&, s] {
      int token = static_cast<int>(static_cast<int64_t>(s) * 2654435 % q.tokens);
      if (q.tokens <= 8) token = s;
      std::vector<double> x(kHidden);
      for (int k = 0; k < kHidden; k++)
        x[k] = random_value(
            q.x_seed, (static_cast<size_t>(instance) * q.tokens + token) * kHidden + k, kInputUnit);
      std::vector<int> columns;
      for (int i = 0; i < 32; i++) columns.push_back((i * 67 + s * 13) % kHidden);
      AdapterSeeds lora = g_adapters.seeds;
      lora.index = c.adapters > 0 ? adapter_of(token, c.adapters) : -1;
      auto want = reference_token(w.seeds, x, &q.experts[instance][token * kTopK],
                                  &q.gains[instance][token * kTopK], columns, lora);
      for (size_t i = 0; i < columns.size(); i++) {
        double got = to_float(out[static_cast<size_t>(token) * kHidden + columns[i]]);
        error[s] += (got - want[i]) * (got - want[i]), norm[s] += want[i] * want[i];
      }
    });
  for (auto& t : threads) t.join();
  double e = 0, n = 0;
  for (int s = 0; s < samples; s++) e += error[s], n += norm[s];
  double rel = std::sqrt(e / n);
  // rows without an adapter: the same bits as without adapters beside them
  static std::vector<uint16_t> base;
  int differ = 0;
  if (c.adapters == 0)
    base = out;
  else
    for (size_t i = 0; i < out.size(); i++)
      differ += adapter_of(i / kHidden, c.adapters) < 0 && out[i] != base[i];
  bool ok = rel < 8e-3 && !poison && differ == 0;
  g_failures += !ok;
  std::printf("check T=%-5d %-32s rel %.2e%s %s\n", q.tokens, name_of(c).c_str(), rel,
              poison       ? " POISON"
              : differ > 0 ? " BASE ROWS DIFFER"
                           : "",
              ok ? "ok" : "WRONG");
  std::fflush(stdout);
}

// Median us a layer of a captured graph of `layers` layers; `pause_ms` of idleness before each
// replay.
static double measure(const Config& c, Problem& q, std::vector<WeightSet>& sets, int replays,
                      int layers = kInstances, int pause_ms = 0) {
  for (auto& w : sets) set_act_maps(w, q);
  set_adapters(c, q);
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreate(&stream));
  CHECK_CUDA(cudaMemset(q.flags, 0, 2 * q.flag_count * 4));
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < layers; i++)
    launch_layer(c, params_of(q, sets[i % sets.size()], i), sets[i % sets.size()].maps,
                 g_multiprocessors, stream);
  CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  cudaEvent_t a, b;
  CHECK_CUDA(cudaEventCreate(&a));
  CHECK_CUDA(cudaEventCreate(&b));
  std::vector<float> times;
  for (int r = 0; r < replays + 2; r++) {
    if (pause_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
    CHECK_CUDA(cudaEventRecord(a, stream));
    CHECK_CUDA(cudaGraphLaunch(exec, stream));
    CHECK_CUDA(cudaEventRecord(b, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    float ms;
    CHECK_CUDA(cudaEventElapsedTime(&ms, a, b));
    if (r >= 2) times.push_back(ms * 1000 / layers);
  }
  std::sort(times.begin(), times.end());
  CHECK_CUDA(cudaGraphExecDestroy(exec));
  CHECK_CUDA(cudaGraphDestroy(graph));
  CHECK_CUDA(cudaStreamDestroy(stream));
  return times[times.size() / 2];
}

struct Peer {
  int tokens;
  double bf16_us, int4_us;
};
constexpr double kPairFlop = 2.0 * 3 * kInner * kHidden;
static double tflops_to_us(int tokens, double tflops) {
  return tokens * kTopK * kPairFlop / tflops * 1e-6;
}
static const Peer kPeers[] = {{1, 32.6, 32},
                              {8, 132, 70},
                              {64, 296, 137},
                              {512, tflops_to_us(512, 117), 267},
                              {2048, tflops_to_us(2048, 302), 0},
                              {8192, tflops_to_us(8192, 387), tflops_to_us(8192, 233)}};

static double g_bytes_per_us = 4.3e6, g_flop_per_us = 745e6;

static void bench(const Config& c, Problem& q, std::vector<WeightSet>& sets, int replays) {
  double us = measure(c, q, sets, replays), again = measure(c, q, sets, replays);
  double live = 0;
  for (int i = 0; i < kInstances; i++) {
    std::vector<int> e = q.experts[i];
    std::sort(e.begin(), e.end());
    live += std::unique(e.begin(), e.end()) - e.begin();
  }
  live /= kInstances;
  double weight = c.format == Format::kBf16 ? 2.0 : kBlobBytes / 8192.0;
  double bytes = live * 3 * kInner * kHidden * weight + 2.0 * q.tokens * kHidden * 2;
  double flop = q.pairs * kPairFlop, floor = std::max(bytes / g_bytes_per_us, flop / g_flop_per_us);
  double peer = 0;
  for (const Peer& p : kPeers)
    if (p.tokens == q.tokens) peer = c.format == Format::kBf16 ? p.bf16_us : p.int4_us;
  std::printf("%5d %-28s %5.1f %7.1f %7.1f %5.0f %6.1f %6.1f %.2f %6.1f\n", q.tokens,
              name_of(c).c_str(), live, us, again, bytes / us * 1e-3, flop / us * 1e-6, floor,
              us / floor, peer);
  if (q.tokens >= 512) {  // the clock falls under sustained load: two layers after a pause, as well
    double burst = measure(c, q, sets, 9, 2, 30);
    std::printf("      after 30 ms of idleness: us %.1f TFLOP/s %.1f\n", burst,
                flop / burst * 1e-6);
  }
  if (!c.whole_layer) {
    std::printf("      parts:");
    Config part = c;
    for (part.parts = 1; part.parts < 4; part.parts++)
      std::printf(" %8.2f", measure(part, q, sets, replays));
    std::printf("\n");
  }
  std::fflush(stdout);
}

// Steps of the blocks of one layer, in us after the first block's start: earliest and latest. Needs
// MOTLEY_TRACE.
static void print_trace(const Config& c, Problem& q, std::vector<WeightSet>& sets) {
  int blocks = g_multiprocessors * c.blocks_per_sm;
  std::vector<unsigned long long> times(blocks * kTracePoints);
  auto* d = device_alloc<unsigned long long>(times.size());
  CHECK_CUDA(cudaMemset(q.flags, 0, 2 * q.flag_count * 4));
  for (int i = 0; i < 4; i++) {
    CHECK_CUDA(cudaMemset(d, 0, times.size() * 8));
    LayerParams p = params_of(q, sets[i % sets.size()], i);
    p.trace = d;
    launch_layer(c, p, sets[i % sets.size()].maps, g_multiprocessors, nullptr);
    CHECK_CUDA(cudaDeviceSynchronize());
  }
  CHECK_CUDA(cudaMemcpy(times.data(), d, times.size() * 8, cudaMemcpyDeviceToHost));
  CHECK_CUDA(cudaFree(d));
  unsigned long long start = ~0ull;
  for (int b = 0; b < blocks; b++) start = std::min(start, times[b * kTracePoints]);
  static const char* const kNames[] = {"started",   "planned",     "last product", "gate_up stored",
                                       "act ready", "down stored", "summed"};
  std::printf("      trace:");
  for (int point = 0; point < kTracePoints; point++) {
    double low = 1e9, high = 0;
    for (int b = 0; b < blocks; b++) {
      unsigned long long v = times[b * kTracePoints + point];
      if (v == 0) continue;
      low = std::min(low, (v - start) * 1e-3), high = std::max(high, (v - start) * 1e-3);
    }
    std::printf(" %s %.1f..%.1f", kNames[point], low, high);
  }
  std::printf("\n");
}

__global__ void read_all(const uint4* p, size_t n, uint32_t* out) {
  uint32_t sum = 0;
  size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x * 4;
  for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < n; i += stride) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
      size_t at = i + j * (stride / 4);
      if (at < n) {
        uint4 v = __ldcs(p + at);
        sum ^= v.x ^ v.y ^ v.z ^ v.w;
      }
    }
  }
  if (sum == 0x12345678) *out = sum;
}

static void ceilings() {
  size_t bytes = size_t{8} << 30;
  uint4* p = device_alloc<uint4>(bytes / 16);
  uint32_t* out = device_alloc<uint32_t>(1);
  fill_random<<<1056, 256>>>(reinterpret_cast<Bf16*>(p), bytes / 2, 9, 1.0f);
  cudaEvent_t a, b;
  CHECK_CUDA(cudaEventCreate(&a));
  CHECK_CUDA(cudaEventCreate(&b));
  float best = 1e9f;
  for (int r = 0; r < 6; r++) {
    CHECK_CUDA(cudaEventRecord(a));
    read_all<<<132 * 16, 512>>>(p, bytes / 16, out);
    CHECK_CUDA(cudaEventRecord(b));
    CHECK_CUDA(cudaEventSynchronize(b));
    float ms;
    CHECK_CUDA(cudaEventElapsedTime(&ms, a, b));
    best = std::min(best, ms);
  }
  std::printf("read of 8 GiB: %.2f TB/s\n", bytes / best * 1e-9);
  CHECK_CUDA(cudaFree(p));
  CHECK_CUDA(cudaFree(out));
}

static std::vector<Config> configs_for(Format f, int tokens) {
  std::vector<Config> list;
  // {format, whole, sum inline, blocks, split, width, blocks an SM, window, in turn, adapters}
  int some = tokens == 1 ? 1 : 4, all = 1 << 20;
  if (tokens == 1)
    for (bool in_turn : {true})
      for (int a : {0, some}) list.push_back({f, true, true, 1, true, 8, 2, all, in_turn, a});
  if (tokens <= 64)
    for (int a : {0, some})
      list.push_back({f, true, true, 1, false, tokens <= 8 ? 8 : 16, 2, all, tokens == 1, a});
  if (tokens == 64) list.push_back({f, true, true, 1, false, 16, 3, 1 << 20});
  if (tokens >= 512) {
    int widest = f == Format::kBf16 && tokens == 2048 ? 160 : 128,
        window = tokens == 8192 ? 128 : 32;
    for (bool gather : {false, true}) {
      Config c{f, true, false, 2, false, widest, 1, window};
      c.gather = gather;
      list.push_back(c);
    }
    if (tokens == 8192) list.push_back({f, false, false, 2, false, 128, 1, 0});
  }
  return list;
}

int main(int argc, char** argv) {
  std::string mode = argc > 1 ? argv[1] : "check";
  cudaDeviceProp prop;
  CHECK_CUDA(cudaGetDeviceProperties(&prop, 0));
  g_multiprocessors = prop.multiProcessorCount;
  std::printf("%s, %d multiprocessors\n", prop.name, prop.multiProcessorCount);
  if (mode == "ceilings") return ceilings(), 0;
  g_adapters = make_adapters();
  std::vector<int> sizes;
  for (int i = 2; i < argc; i++) sizes.push_back(std::atoi(argv[i]));
  bool tracing = mode == "trace", timing = mode == "bench" || tracing;
  if (timing)
    std::printf(
        "    T version                       experts   us     again  GB/s TFLOP/s  floor    x    "
        "peer\n");
  if (sizes.empty()) sizes = {1, 8, 64, 512, 2048, 8192};
  for (Format f : {Format::kBf16, Format::kInt4}) {
    std::vector<WeightSet> sets;
    for (int s = 0; s < (timing ? kSets : 1); s++)
      sets.push_back(make_weights(f, 1000 + 10 * s + 500 * static_cast<int>(f)));
    for (int tokens : sizes) {
      Problem q = make_problem(tokens, tokens * 17 + static_cast<int>(f) + 5);
      for (const Config& c : configs_for(f, tokens)) {
        if (timing) bench(c, q, sets, tokens >= 2048 ? 5 : 15);
        if (timing && tracing) print_trace(c, q, sets);
        if (timing) continue;
        check(c, q, sets[0], tokens % kInstances);
      }
      free_problem(q);
    }
    for (auto& w : sets) {
      CHECK_CUDA(cudaFree(w.gate_up));
      CHECK_CUDA(cudaFree(w.down));
    }
  }
  if (!timing) std::printf("%s\n", g_failures == 0 ? "all right" : "FAILURES");
  return g_failures != 0;
}
