#pragma once

#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "lora/apply/batch.h"
#include "lora/pages/pool.h"
#include "moe/backend.h"
#include "moe/conformance/conformance.h"
#include "tensor/device/device.h"

// Runs backends on the device of this test program.
namespace motley::moe::conformance {

// Each program with the suite defines these three: cpu.cc, or a file of tests/gpu.
// opens nothing, because tests are listed on machines without a GPU, too
tensor::DeviceKind device_kind();
tensor::Device& device();
const kernels::ElementaryTable& device_kernels();

std::span<const Backend* const> backends();
// The backends, each with every format that some problem of it supports.
std::vector<std::pair<const Backend*, quant::Format>> backends_and_formats();

// A device whose memory is NaN until it is written.
class PoisonedDevice final : public tensor::Device {
 public:
  // `device` must outlive it.
  explicit PoisonedDevice(tensor::Device& device) : device_(device) {}

  tensor::DeviceId id() const override { return device_.id(); }
  std::string description() const override { return device_.description(); }
  Result<tensor::MemoryInfo> memory() const override { return device_.memory(); }
  Result<std::unique_ptr<tensor::Stream>> create_stream() override {
    return device_.create_stream();
  }
  Result<std::unique_ptr<tensor::Event>> create_event() override { return device_.create_event(); }
  tensor::Allocator& pinned_memory() override { return device_.pinned_memory(); }

  // Fills all memory that was allocated from it with NaN.
  void poison();

 private:
  Result<void*> take(std::size_t bytes) override;
  void give_back(void* data, std::size_t bytes) noexcept override;
  void poison(const tensor::Buffer& memory);

  tensor::Device& device_;
  std::map<void*, tensor::Buffer> taken_;
};

// Adapters of a batch, in a pool on the device.
struct Deltas {
  const lora::Batch& batch;
  lora::Pool& pool;
};

// Limits that the suite's mixes stay within, and reach.
inline constexpr DeltaLimits delta_limits{.labels = 16, .terms = 3, .rank = 17, .rank_sum = 25};

// A layer prepared by a backend.
class Prepared {
 public:
  Prepared(const Backend& backend, const Layer& layer);

  const Layer& layer() const { return layer_; }

  // Runs with poisoned output and workspace, and with poisoned scratch of exactly the size that the
  // backend requests. Aborts if scratch stays in use. `threads`: of the CPU.
  // `kernel`: instead of the one that the backend chooses; nothing if it does not support the call.
  std::vector<float> run(const Rows& rows, Compute compute, int threads = 3,
                         const Deltas* deltas = nullptr, const ExpertKernel* kernel = nullptr);

 private:
  struct Work {
    std::int64_t max_tokens = 0;
    std::unique_ptr<Workspace> workspace;
  };
  Workspace& workspace(const Problem& problem, std::int64_t tokens);

  const Backend& backend_;
  const Layer& layer_;
  PoisonedDevice weight_memory_;
  PoisonedDevice work_memory_;
  std::unique_ptr<PreparedExperts> experts_;
  std::map<std::pair<bool, bool>, Work> work_;  // by exact and LoRA
};

}  // namespace motley::moe::conformance
