#include "serving/devices.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include "base/cat.h"
#include "base/log.h"
#include "base/system/cpu.h"
#include "dist/nccl_library.h"

namespace motley::serving {
namespace {

Error wrong(std::string what, std::string_view option, std::string fix) {
  return {ErrorCode::invalid_argument, std::move(what), std::string(option), std::move(fix)};
}

// Ranks of all replicas have equal shares.
int threads_of_rank(const ComputeSettings& settings) {
  return std::max(1, usable_cpus() / (settings.ranks * settings.replicas));
}

// "2 replicas of 4 ranks take 8 GPUs"
std::string demand(const ComputeSettings& settings) {
  const auto count = [](int number, std::string_view thing) {
    return cat(number, " ", thing, number == 1 ? "" : "s");
  };
  const std::string ranks = count(settings.ranks, "rank");
  const bool several = settings.replicas > 1;
  const std::string replicas = count(settings.replicas, "replica");
  return cat(several ? replicas : ranks, several && settings.ranks > 1 ? cat(" of ", ranks) : "",
             " take ", settings.ranks * settings.replicas, " GPUs");
}

std::string_view option_of(const ComputeSettings& settings) {
  if (settings.replicas > 1) return "--dp";
  return settings.expert_groups == settings.ranks ? "--ep" : "--tp";
}

}  // namespace

Result<ComputeSettings> choose_devices(ComputeSettings settings) {
  if (settings.ranks * settings.replicas == 1) return settings;
  // Before CUDA begins: its kernels are loaded at once. One that was loaded when it is first used
  // would wait for GPUs on which other ranks wait (dist::GpuRanks).
  if (settings.ranks > 1) {
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    dist::set_nccl_environment();
  }
  settings.device = tensor::decide(settings.device);
  if (settings.device.kind == tensor::DeviceChoice::Kind::cpu) return settings;
  const int here = tensor::gpu_count();
  if (here == 0) return settings;  // open_device() says why
  MOTLEY_TRY(settings.gpus, gpus_of_ranks(settings, here));
  settings.device.index = settings.gpus.front();
  return settings;
}

Result<std::vector<int>> gpus_of_ranks(const ComputeSettings& settings, int gpus_here) {
  if (!settings.gpus.empty()) {
    for (const int gpu : settings.gpus)
      if (gpu >= gpus_here)
        return wrong(cat("names GPU ", gpu, ", and this host has ", gpus_here, ", numbered from 0"),
                     "--devices", "name those that are there");
    return settings.gpus;
  }
  const int wanted = settings.ranks * settings.replicas;
  if (wanted > gpus_here)
    return wrong(cat(demand(settings), ", and this host has ", gpus_here), option_of(settings),
                 "use fewer, or --device cpu");
  std::vector<int> first(static_cast<std::size_t>(wanted));
  std::iota(first.begin(), first.end(), 0);
  return first;
}

Result<std::unique_ptr<tensor::Device>> open_device(const ComputeSettings& settings) {
  if (settings.ranks * settings.replicas == 1)
    return tensor::open_device(settings.device, {.owns_machine = true});
  return tensor::open_device(settings.device, {.threads = threads_of_rank(settings)});
}

Result<std::unique_ptr<runner::OtherRanks>> make_other_ranks(
    const ComputeSettings& settings, const tensor::Device& first,
    std::shared_ptr<dist::LaunchGate> gate) {
  const bool on_gpus = first.id().kind != tensor::DeviceKind::cpu;
  if (!on_gpus && settings.ranks_over != dist::RanksOver::automatic)
    return wrong("ranks on a CPU exchange numbers over the host's memory", "--ranks-over",
                 "leave it out");
  if (settings.ranks == 1 && settings.ranks_over != dist::RanksOver::automatic)
    return wrong("one rank exchanges nothing", "--ranks-over", "leave it out, or use --tp");
  if (settings.ranks == 1) return std::unique_ptr<runner::OtherRanks>();
  runner::OtherRanks::Options options{
      .ranks = settings.ranks, .threads = threads_of_rank(settings), .over = settings.ranks_over};
  if (on_gpus) {
    options.gpus = settings.gpus;
    options.gate = std::move(gate);
  }
  MOTLEY_TRY(std::unique_ptr<runner::OtherRanks> others, runner::OtherRanks::create(options));
  if (on_gpus)
    log::info("ranks.over",
              {{"over", dist::name(others->choice().over)}, {"reason", others->choice().reason}});
  return others;
}

ComputeSettings settings_of_replica(ComputeSettings settings, int replica) {
  if (settings.gpus.empty()) return settings;
  const auto first = settings.gpus.begin() + std::ptrdiff_t{settings.ranks} * replica;
  settings.gpus = std::vector<int>(first, first + settings.ranks);
  settings.device = {.kind = tensor::DeviceChoice::Kind::cuda, .index = settings.gpus.front()};
  return settings;
}

}  // namespace motley::serving
