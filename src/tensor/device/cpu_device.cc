#include "tensor/device/cpu_device.h"

#include <cstdlib>
#include <cstring>
#include <limits>
#include <sys/mman.h>

#include "base/cat.h"
#include "base/system/cpu.h"
#include "base/system/memory.h"
#include "base/units.h"

namespace motley::tensor {
namespace {

// For larger buffers, huge pages save TLB misses that sequential reads would stall on.
constexpr std::size_t huge_page = std::size_t{2} << 20;

class CpuEvent final : public Event {
 public:
  Result<bool> reached() const override { return true; }
  Result<void> synchronize() const override { return {}; }
};

class CpuStream final : public Stream {
 public:
  explicit CpuStream(ThreadPool* pool) : pool_(pool) {}

  StreamHandle handle() const override { return {.native = pool_}; }
  Result<void> copy(void* to, const void* from, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return {};
  }
  Result<void> fill(void* to, std::byte value, std::size_t bytes) override {
    if (bytes > 0) std::memset(to, std::to_integer<int>(value), bytes);
    return {};
  }
  Result<void> record(Event&) override { return {}; }
  Result<std::unique_ptr<Event>> record() override {
    return std::unique_ptr<Event>(std::make_unique<CpuEvent>());
  }
  Result<void> wait(const Event& event) override { return event.synchronize(); }
  Result<void> synchronize() override { return {}; }
  Result<std::unique_ptr<Graph>> capture(FunctionRef<Result<void>()>) override {
    return Error(ErrorCode::unsupported, "work can't be captured: it is done when its call returns",
                 "cpu", "run it each time");
  }

 private:
  ThreadPool* pool_;
};

// If the system does not report its memory, the allocator decides.
std::uint64_t memory_limit() {
  const auto memory = machine_memory();
  return memory.ok() ? memory->total : std::numeric_limits<std::uint64_t>::max();
}

std::string instruction_sets() {
  const CpuFeatures& cpu = cpu_features();
  if (cpu.avx512_bf16) return "AVX-512 with BF16";
  if (cpu.avx512_vnni) return "AVX-512 with VNNI";
  if (cpu.avx512) return "AVX-512";
  if (cpu.avx2) return "AVX2";
  return "no vector extensions";
}

}  // namespace

CpuDevice::CpuDevice(const CpuOptions& options)
    : memory_limit_(memory_limit()),
      pool_({.threads = options.threads, .pin = options.owns_machine}) {}

std::string CpuDevice::description() const {
  return cat("CPU, ", pool_.size(), pool_.size() == 1 ? " thread, " : " threads, ",
             instruction_sets());
}

Result<MemoryInfo> CpuDevice::memory() const {
  MOTLEY_TRY(const MachineMemory memory, machine_memory());
  return MemoryInfo{.total = memory.total, .available = memory.available};
}

Result<std::unique_ptr<Stream>> CpuDevice::create_stream() {
  return std::unique_ptr<Stream>(std::make_unique<CpuStream>(&pool_));
}

Result<std::unique_ptr<Event>> CpuDevice::create_event() {
  return std::unique_ptr<Event>(std::make_unique<CpuEvent>());
}

Result<void*> CpuDevice::take(std::size_t bytes) {
  // The kernel would grant more than the machine or the container has, and kill the process when it
  // is used.
  if (bytes <= memory_limit_ && bytes <= SIZE_MAX - huge_page) {
    const std::size_t unit = bytes >= huge_page ? huge_page : alignment;
    // aligned_alloc() requires a multiple of the alignment.
    if (void* data = std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit)) {
      if (unit == huge_page) ::madvise(data, bytes, MADV_HUGEPAGE);
      return data;
    }
  }
  return Error(ErrorCode::out_of_memory, cat("no room for ", format_bytes(bytes), memory_left()),
               "cpu", "free some memory, or ask for less");
}

void CpuDevice::give_back(void* data, std::size_t) noexcept { std::free(data); }

}  // namespace motley::tensor
