#include "runs.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

namespace motley::bench::half_step {
namespace {

constexpr int list_words = 1 + max_rows * chosen;

template <class T>
T* room(std::size_t count) {
  T* data = nullptr;
  CHECK_CUDA(cudaMalloc(&data, count * sizeof(T)));
  CHECK_CUDA(cudaMemset(data, 0, count * sizeof(T)));
  return data;
}

// Best first.
std::vector<int> best_of(const float* logits) {
  std::vector<int> order(experts);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(
      order, [&](int a, int b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  order.resize(chosen);
  return order;
}

}  // namespace

Runs::Runs(const Instance& instance, int blocks, std::uint64_t limit_ns,
           const std::vector<WeightSet>& sets)
    : instance_(instance), blocks_(blocks), limit_ns_(limit_ns), sets_(sets) {
  const auto rows = static_cast<std::size_t>(instance.rows);
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  first_projections_.resize(rows * projected);
  for (Bf16& value : first_projections_) value = __float2bfloat16_rn(normal(random));
  first_residual_.resize(rows * hidden);
  for (float& value : first_residual_) value = normal(random);
  projections_ = on_device(first_projections_);
  residual_ = on_device(first_residual_);
  cells_ = room<std::uint32_t>(2 * static_cast<std::size_t>(Cells{instance.rows}.words()));
  epoch_ = room<std::uint32_t>(1);
  failure_ = room<std::uint32_t>(1);
  CHECK_CUDA(cudaHostAlloc(&host_failure_, sizeof *host_failure_, cudaHostAllocMapped));
  live_ = room<int>(layers);
  stamps_ = room<long long>(layers * static_cast<std::size_t>(blocks) * stamps);
  foreign_ = std::make_unique<Foreign>(blocks);
  make_choices();
  reset();
}
Runs::~Runs() {
  for (void* data :
       {static_cast<void*>(projections_), static_cast<void*>(residual_), static_cast<void*>(cells_),
        static_cast<void*>(epoch_), static_cast<void*>(failure_), static_cast<void*>(logits_),
        static_cast<void*>(lists_), static_cast<void*>(live_), static_cast<void*>(stamps_)})
    cudaFree(data);
  cudaFreeHost(host_failure_);
}

void Runs::make_choices() {
  const auto rows = static_cast<std::size_t>(instance_.rows);
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  std::vector<float> logits(layers * rows * experts);
  for (float& value : logits) value = normal(random);
  std::vector<int> lists(layers * list_words);
  for (std::size_t layer = 0; layer < layers; ++layer) {
    std::vector<int> all;
    for (std::size_t row = 0; row < rows; ++row) {
      const auto ids = best_of(logits.data() + (layer * rows + row) * experts);
      all.insert(all.end(), ids.begin(), ids.end());
    }
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    lists[layer * list_words] = static_cast<int>(all.size());
    std::copy(all.begin(), all.end(), lists.begin() + static_cast<long>(layer) * list_words + 1);
  }
  logits_ = on_device(logits);
  lists_ = on_device(lists);
}

void Runs::reset() {
  CHECK_CUDA(cudaMemcpy(projections_, first_projections_.data(),
                        first_projections_.size() * sizeof(Bf16), cudaMemcpyHostToDevice));
  CHECK_CUDA(cudaMemcpy(residual_, first_residual_.data(), first_residual_.size() * sizeof(float),
                        cudaMemcpyHostToDevice));
  CHECK_CUDA(cudaMemset(
      cells_, 0xFF, 2 * static_cast<std::size_t>(Cells{instance_.rows}.words()) * sizeof *cells_));
  CHECK_CUDA(cudaMemset(failure_, 0, sizeof *failure_));
  *host_failure_ = 0;
  CHECK_CUDA(cudaDeviceSynchronize());
}

HalfStep Runs::step(int layer, const Run& run) const {
  HalfStep p{};
  p.weights = set(layer).packed;
  p.projections = projections_;
  p.residual = residual_;
  p.cells = cells_;
  p.epoch = epoch_;
  p.failure = failure_;
  p.host_failure = host_failure_;
  p.logits = logits_ + static_cast<std::ptrdiff_t>(layer) * instance_.rows * experts;
  p.expert_list = lists_ + static_cast<std::ptrdiff_t>(layer) * list_words;
  p.live = live_ + layer;
  if (stamping_) p.stamps = stamps_ + static_cast<std::ptrdiff_t>(layer) * blocks_ * stamps;
  p.limit_ns = limit_ns_;
  p.rung = run.rung;
  return p;
}

void Runs::launch_layer(int layer, const Run& run, cudaStream_t stream) {
  if (!run.foreign_only) CHECK_CUDA(launch(instance_, step(layer, run), blocks_, run.mode, stream));
  if (run.foreign || run.foreign_only)
    foreign_->launch(layer, run.mode == LaunchMode::programmatic, stream);
}
void Runs::launch_all(const Run& run, cudaStream_t stream) {
  for (int layer = 0; layer < layers; ++layer) launch_layer(layer, run, stream);
}

std::string Runs::finish(cudaStream_t stream) {
  const cudaError_t error = cudaStreamSynchronize(stream);
  const std::uint32_t word = *static_cast<volatile std::uint32_t*>(host_failure_);
  std::string text;
  if (word != 0)
    text = "waited too long for '" + std::string(place_names[word & 0xFF]) + "' in block " +
           std::to_string(word >> 8);
  if (error != cudaSuccess) {
    std::printf("%s%s%s\n", text.c_str(), text.empty() ? "" : ": ", cudaGetErrorString(error));
    std::exit(1);
  }
  return text;
}

double Runs::replay_time(cudaGraphExec_t graph, const Run& run, int replays, cudaStream_t stream) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  CHECK_CUDA(cudaEventCreate(&begin));
  CHECK_CUDA(cudaEventCreate(&end));
  std::vector<float> times;
  constexpr int warm_up = 3;
  for (int r = 0; r < replays + warm_up; ++r) {
    CHECK_CUDA(cudaEventRecord(begin, stream));
    if (graph != nullptr) {
      CHECK_CUDA(cudaGraphLaunch(graph, stream));
    } else {
      launch_all(run, stream);
    }
    CHECK_CUDA(cudaEventRecord(end, stream));
    if (!finish(stream).empty()) break;
    float ms = 0;
    CHECK_CUDA(cudaEventElapsedTime(&ms, begin, end));
    if (r >= warm_up) times.push_back(ms * 1000 / layers);
  }
  CHECK_CUDA(cudaEventDestroy(begin));
  CHECK_CUDA(cudaEventDestroy(end));
  if (times.empty()) return 0;
  std::sort(times.begin(), times.end());
  return static_cast<double>(times[times.size() / 2]);
}

Time Runs::measure(const Run& run, int replays) {
  reset();
  cudaStream_t stream = nullptr;
  CHECK_CUDA(cudaStreamCreate(&stream));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  if (run.in_graph) {
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    launch_all(run, stream);
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  }
  Time time;
  time.us = replay_time(exec, run, replays, stream);
  time.again = replay_time(exec, run, replays, stream);
  time.failure = finish(stream);
  for (const int count : from_device(live_, layers))
    time.live += static_cast<double>(count) / layers;
  if (exec != nullptr) CHECK_CUDA(cudaGraphExecDestroy(exec));
  if (graph != nullptr) CHECK_CUDA(cudaGraphDestroy(graph));
  CHECK_CUDA(cudaStreamDestroy(stream));
  return time;
}

bool Runs::same_bits(const Run& run, std::vector<float>& wanted) {
  reset();
  launch_all(run, nullptr);
  const bool finished = finish(nullptr).empty();
  std::vector<float> values = residual();
  for (const Bf16& value : projections()) values.push_back(__bfloat162float(value));
  if (wanted.empty()) wanted = values;
  return finished && std::memcmp(values.data(), wanted.data(), values.size() * sizeof(float)) == 0;
}

std::vector<long long> Runs::stamped_chain(const Run& run) {
  reset();
  stamping_ = true;
  launch_all(run, nullptr);
  finish(nullptr);
  stamping_ = false;
  return from_device(stamps_, layers * static_cast<std::size_t>(blocks_) * stamps);
}

std::vector<Bf16> Runs::projections() const {
  return from_device(projections_, first_projections_.size());
}
std::vector<float> Runs::residual() const { return from_device(residual_, first_residual_.size()); }

std::vector<std::uint32_t> Runs::used_cells() const {
  const std::uint32_t epoch = from_device(epoch_, 1)[0] - 1;  // after the launch
  const auto words = static_cast<std::size_t>(Cells{instance_.rows}.words());
  return from_device(cells_ + epoch % 2 * words, words);
}

}  // namespace motley::bench::half_step
