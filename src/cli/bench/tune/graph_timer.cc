#include "cli/bench/tune/graph_timer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "base/number_types.h"
#include "base/system/clock.h"

namespace motley::cli {
namespace {

constexpr int rounds = 7;
// A round takes about as long, so that the host's part in it is small.
constexpr double round_seconds = 2e-3;
constexpr int max_replays = 50;

}  // namespace

Result<std::unique_ptr<GraphTimer>> GraphTimer::create(tensor::Device& device,
                                                       const kernels::ElementaryTable& kernels) {
  MOTLEY_TRY(std::unique_ptr<tensor::Stream> stream, device.create_stream());
  return std::unique_ptr<GraphTimer>(new GraphTimer(kernels, std::move(stream)));
}

Result<double> GraphTimer::replay(const tensor::Graph& graph, int replays) {
  const SteadyClock clock;
  const TimePoint start = clock.now();
  for (int i = 0; i < replays; ++i) MOTLEY_TRY_VOID(graph.launch(*stream_));
  MOTLEY_TRY_VOID(stream_->synchronize());
  return seconds(clock.now() - start);
}

Result<double> GraphTimer::time(int launches, FunctionRef<void(StreamHandle)> begin, Launch launch,
                                double limit_us) {
  // The first call of a library may do what a graph can't hold.
  begin(handle());
  launch(0, handle());
  MOTLEY_TRY_VOID(stream_->synchronize());
  MOTLEY_TRY_VOID(kernels::cuda_launches(kernels_));
  MOTLEY_TRY(const std::unique_ptr<tensor::Graph> graph, stream_->capture([&]() -> Result<void> {
    begin(handle());
    for (int i = 0; i < launches; ++i) launch(i, handle());
    return kernels::cuda_launches(kernels_);
  }));
  MOTLEY_TRY_VOID(replay(*graph, 1));
  MOTLEY_TRY(const double rough, replay(*graph, 1));
  const double us = 1e6 / launches;
  if (rough * us > limit_us) return std::round(rough * us * 1e3) / 1e3;
  const int replays =
      std::clamp(static_cast<int>(round_seconds / std::max(rough, 1e-6)), 1, max_replays);
  std::array<double, rounds> times{};
  for (double& each : times) {
    MOTLEY_TRY(each, replay(*graph, replays));
  }
  std::ranges::sort(times);
  MOTLEY_TRY_VOID(kernels::cuda_launches(kernels_));
  // Digits beyond a nanosecond are noise.
  return std::round(times[rounds / 2] / replays * us * 1e3) / 1e3;
}

Result<void> fill_random(tensor::Stream& stream, std::byte* to, std::size_t bytes) {
  std::vector<bf16> numbers(std::min(bytes / sizeof(bf16) + 1, std::size_t{1} << 20));
  std::uint32_t state = 1;
  for (bf16& number : numbers) {
    state = state * 1664525U + 1013904223U;
    number = bf16::from(static_cast<float>(state >> 8) / 16777216.0F - 0.5F);
  }
  const std::size_t block = numbers.size() * sizeof(bf16);
  for (std::size_t at = 0; at < bytes; at += block)
    MOTLEY_TRY_VOID(stream.copy(to + at, numbers.data(), std::min(block, bytes - at)));
  return stream.synchronize();
}

}  // namespace motley::cli
