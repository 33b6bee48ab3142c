#include "tensor/device/cuda_device.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include <cuda_runtime.h>

#include "base/cat.h"
#include "base/check.h"
#include "base/system/memory.h"
#include "base/system/nvidia_libraries.h"
#include "base/units.h"
#include "tensor/device/reservation.h"

namespace motley::tensor {
namespace {

// Out of memory is an ordinary error; any other leaves the device in a state that cannot be
// repaired, and is final for the process.
Error cuda_error(cudaError_t status, std::string_view action, int device) {
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // or the runtime reports it again at the next launch
    return {ErrorCode::out_of_memory, cat("no room on the GPU to ", action), cat("cuda:", device),
            "ask for less (--kv-memory, --adapter-memory), or free the GPU"};
  }
  return {ErrorCode::internal, cat("the GPU failed to ", action, ": ", cudaGetErrorString(status)),
          cat("cuda:", device), "restart; if it happens again, check the GPU with nvidia-smi"};
}

#define MOTLEY_CUDA(call, action, device)               \
  do {                                                  \
    const cudaError_t motley_status = (call);           \
    if (motley_status != cudaSuccess) [[unlikely]]      \
      return cuda_error(motley_status, action, device); \
  } while (false)

// The runtime's current device is per thread, and the caller may have used another one.
Result<void> make_current(int device) {
  MOTLEY_CUDA(cudaSetDevice(device), "become current", device);
  return {};
}

class CudaEvent final : public Event {
 public:
  CudaEvent(cudaEvent_t event, int device) : event_(event), device_(device) {}
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  ~CudaEvent() override { cudaEventDestroy(event_); }

  cudaEvent_t native() const { return event_; }

  Result<bool> reached() const override {
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) return false;
    MOTLEY_CUDA(status, "reach an event", device_);
    return true;
  }
  Result<void> synchronize() const override {
    MOTLEY_CUDA(cudaEventSynchronize(event_), "reach an event", device_);
    return {};
  }

 private:
  cudaEvent_t event_;
  int device_;
};

Result<std::unique_ptr<CudaEvent>> make_event(int device) {
  MOTLEY_TRY_VOID(make_current(device));
  cudaEvent_t event = nullptr;
  MOTLEY_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "make an event", device);
  return std::make_unique<CudaEvent>(event, device);
}

class CudaGraph final : public Graph {
 public:
  CudaGraph(cudaGraphExec_t graph, std::size_t work_count, int device)
      : graph_(graph), work_count_(work_count), device_(device) {}
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  ~CudaGraph() override { cudaGraphExecDestroy(graph_); }

  Result<void> launch(Stream& stream) const override {
    MOTLEY_TRY_VOID(make_current(device_));
    MOTLEY_CUDA(cudaGraphLaunch(graph_, static_cast<cudaStream_t>(stream.handle().native)),
                "launch a graph", device_);
    return {};
  }
  std::int64_t work_count() const override { return static_cast<std::int64_t>(work_count_); }

 private:
  cudaGraphExec_t graph_;
  std::size_t work_count_;
  int device_;
};

class CudaStream final : public Stream {
 public:
  CudaStream(cudaStream_t stream, int device) : stream_(stream), device_(device) {}
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  ~CudaStream() override { cudaStreamDestroy(stream_); }

  StreamHandle handle() const override { return {.native = stream_}; }

  Result<void> copy(void* to, const void* from, std::size_t bytes) override {
    MOTLEY_TRY_VOID(make_current(device_));
    MOTLEY_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_), "copy", device_);
    return {};
  }
  Result<void> fill(void* to, std::byte value, std::size_t bytes) override {
    MOTLEY_TRY_VOID(make_current(device_));
    MOTLEY_CUDA(cudaMemsetAsync(to, std::to_integer<int>(value), bytes, stream_), "fill memory",
                device_);
    return {};
  }
  Result<void> record(Event& event) override {
    auto* const ours = dynamic_cast<CudaEvent*>(&event);
    MOTLEY_CHECK(ours != nullptr, "an event of this device");
    MOTLEY_TRY_VOID(make_current(device_));
    MOTLEY_CUDA(cudaEventRecord(ours->native(), stream_), "record an event", device_);
    return {};
  }
  Result<std::unique_ptr<Event>> record() override {
    MOTLEY_TRY(std::unique_ptr<CudaEvent> event, make_event(device_));
    MOTLEY_TRY_VOID(record(*event));
    return std::unique_ptr<Event>(std::move(event));
  }
  Result<void> wait(const Event& event) override {
    const auto* ours = dynamic_cast<const CudaEvent*>(&event);
    // A CPU event has been reached when it is created.
    if (ours == nullptr) return event.synchronize();
    MOTLEY_CUDA(cudaStreamWaitEvent(stream_, ours->native(), 0), "wait for an event", device_);
    return {};
  }
  Result<void> synchronize() override {
    MOTLEY_CUDA(cudaStreamSynchronize(stream_), "finish its work", device_);
    return {};
  }
  Result<std::unique_ptr<Graph>> capture(FunctionRef<Result<void>()> work) override {
    MOTLEY_TRY_VOID(make_current(device_));
    // Other threads are not affected: loads copy while a step is captured.
    MOTLEY_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "begin a graph",
                device_);
    Result<void> queued = work();
    cudaGraph_t graph = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream_, &graph);
    cudaGraphExec_t instance = nullptr;
    const bool whole = queued.ok() && ended == cudaSuccess;
    std::size_t work_count = 0;
    cudaError_t made = whole ? cudaGraphInstantiate(&instance, graph, 0) : cudaSuccess;
    if (whole && made == cudaSuccess) made = cudaGraphGetNodes(graph, nullptr, &work_count);
    // Else the first launch would.
    if (whole && made == cudaSuccess) made = cudaGraphUpload(instance, stream_);
    if (graph != nullptr) cudaGraphDestroy(graph);
    if (!queued.ok()) {
      // The error may have made capturing fail, and must not be reported by the next call.
      cudaGetLastError();
      return std::move(queued).error();
    }
    MOTLEY_CUDA(ended, "end a graph", device_);
    MOTLEY_CUDA(made, "make a graph", device_);
    return std::unique_ptr<Graph>(std::make_unique<CudaGraph>(instance, work_count, device_));
  }

 private:
  cudaStream_t stream_;
  int device_;
};

// Pinned memory is committed at once, and pinning too much makes the kernel kill other processes.
// This part of the machine's memory stays free.
constexpr std::uint64_t parts_left_free = 64;

Error no_pinned_memory(std::size_t bytes) {
  return {ErrorCode::out_of_memory,
          cat("no room for ", format_bytes(bytes), " of pinned memory", memory_left()), "cpu",
          "free some of the host's memory, or ask for less"};
}

// Pinned in pieces. Other threads' calls may wait while the driver pins one, so pieces are small;
// but a process has some 65,000 mappings, and each piece may take one.
class PinnedReservation final : public Reservation {
 public:
  static constexpr std::size_t least_piece = std::size_t{8} << 20;
  static constexpr std::size_t max_pieces = 4096;

  static std::size_t piece_of(std::size_t bytes) {
    return std::max(least_piece,
                    (bytes / max_pieces + least_piece - 1) / least_piece * least_piece);
  }

  PinnedReservation(AddressRange range, int device)
      : Reservation({.data = range.data(),
                     .size = range.size(),
                     .piece_bytes = piece_of(range.size()),
                     .pinned = true}),
        range_(std::move(range)),
        device_(device) {}
  ~PinnedReservation() override {
    for (std::size_t begin = 0; begin < committed(); begin += piece_bytes())
      cudaHostUnregister(range_.data() + begin);
    cudaGetLastError();
  }

 private:
  Result<void> commit_piece(std::size_t begin, std::size_t bytes) override {
    const auto memory = machine_memory();
    if (memory.ok() && bytes + memory->total / parts_left_free > memory->available)
      return no_pinned_memory(bytes);
    MOTLEY_TRY_VOID(make_current(device_));
    MOTLEY_TRY_VOID(range_.open(begin, bytes));
    const cudaError_t status =
        cudaHostRegister(range_.data() + begin, bytes, cudaHostRegisterPortable);
    if (status == cudaSuccess) return {};
    cudaGetLastError();
    range_.close(begin, bytes);
    return Error(
        ErrorCode::out_of_memory,
        cat("the driver can't page-lock ", format_bytes(bytes), ": ", cudaGetErrorString(status)),
        "cpu", "free some of the host's memory, or raise its limits (ulimit -l)");
  }

  AddressRange range_;
  int device_;
};

class PinnedMemory final : public Allocator {
 public:
  explicit PinnedMemory(int device) : device_(device) {}

  DeviceId id() const override { return {}; }
  bool pinned() const override { return true; }
  Result<std::unique_ptr<Reservation>> reserve(std::size_t bytes) override {
    const auto memory = machine_memory();
    if (memory.ok() && bytes > memory->available) return no_pinned_memory(bytes);
    MOTLEY_TRY(AddressRange range, AddressRange::reserve(bytes));
    return std::unique_ptr<Reservation>(
        std::make_unique<PinnedReservation>(std::move(range), device_));
  }

 private:
  Result<void*> take(std::size_t bytes) override {
    const auto memory = machine_memory();
    if (memory.ok() && bytes > memory->available) return no_pinned_memory(bytes);
    MOTLEY_TRY_VOID(make_current(device_));
    void* data = nullptr;
    const cudaError_t status = cudaHostAlloc(&data, bytes, cudaHostAllocPortable);
    if (status == cudaSuccess) return data;
    if (status != cudaErrorMemoryAllocation)
      return cuda_error(status, "pin the host's memory", device_);
    cudaGetLastError();
    return no_pinned_memory(bytes);
  }
  void give_back(void* data, std::size_t) noexcept override { cudaFreeHost(data); }

  int device_;
};

class CudaDevice final : public Device {
 public:
  CudaDevice(int index, const cudaDeviceProp& properties)
      : index_(index), properties_(properties), pinned_memory_(index) {}

  DeviceId id() const override {
    return {.kind = DeviceKind::cuda, .index = static_cast<std::int16_t>(index_)};
  }

  std::string description() const override {
    return cat(properties_.name, ", ", format_bytes(properties_.totalGlobalMem), ", ",
               properties_.multiProcessorCount, " SMs, compute capability ", properties_.major, ".",
               properties_.minor);
  }

  Result<MemoryInfo> memory() const override {
    MOTLEY_TRY_VOID(make_current(index_));
    std::size_t available = 0;
    std::size_t total = 0;
    MOTLEY_CUDA(cudaMemGetInfo(&available, &total), "tell its free memory", index_);
    return MemoryInfo{.total = total, .available = available};
  }

  Result<std::unique_ptr<Stream>> create_stream() override {
    MOTLEY_TRY_VOID(make_current(index_));
    cudaStream_t stream = nullptr;
    MOTLEY_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "make a stream", index_);
    return std::unique_ptr<Stream>(std::make_unique<CudaStream>(stream, index_));
  }

  Result<std::unique_ptr<Event>> create_event() override {
    MOTLEY_TRY(std::unique_ptr<CudaEvent> event, make_event(index_));
    return std::unique_ptr<Event>(std::move(event));
  }

  Allocator& pinned_memory() override { return pinned_memory_; }

 private:
  Result<void*> take(std::size_t bytes) override {
    MOTLEY_TRY_VOID(make_current(index_));
    void* data = nullptr;
    MOTLEY_CUDA(cudaMalloc(&data, bytes), cat("take ", format_bytes(bytes)), index_);
    return data;
  }

  void give_back(void* data, std::size_t) noexcept override { cudaFree(data); }

  int index_;
  cudaDeviceProp properties_;
  PinnedMemory pinned_memory_;
};

}  // namespace

int count_cuda_devices() {
  int count = 0;
  if (!nvidia_library(NvidiaLibrary::driver).ok()) return 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

Result<std::unique_ptr<Device>> open_cuda_device(int index) {
  MOTLEY_TRY(const DynamicLibrary* const driver, nvidia_library(NvidiaLibrary::driver));
  static_cast<void>(driver);  // loaded for its clear error message
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0)
    return Error(ErrorCode::unavailable,
                 cat("no GPU can be used: ",
                     status == cudaSuccess ? "there is none" : cudaGetErrorString(status)),
                 "--device cuda",
                 "check the GPU and its driver with nvidia-smi, or use --device cpu");
  if (index >= count)
    return Error(ErrorCode::invalid_argument, cat("there is no GPU ", index), "--device cuda",
                 cat("the GPUs here are 0 to ", count - 1));
  cudaDeviceProp properties{};
  MOTLEY_CUDA(cudaGetDeviceProperties(&properties, index), "tell its properties", index);
  const std::string capability = cat(properties.major, ".", properties.minor);
  constexpr auto built_for = std::to_array<std::string_view>({MOTLEY_COMPUTE_CAPABILITIES});
  if (std::ranges::find(built_for, std::string_view(capability)) == built_for.end())
    return Error(ErrorCode::unsupported,
                 cat(properties.name, " has compute capability ", capability,
                     ", and this build's kernels are for ", join(built_for)),
                 cat("cuda:", index), "use a GPU of that capability, or --device cpu");
  return std::unique_ptr<Device>(std::make_unique<CudaDevice>(index, properties));
}

}  // namespace motley::tensor
