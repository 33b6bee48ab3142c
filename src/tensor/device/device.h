#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "base/result.h"
#include "base/system/stream_handle.h"
#include "tensor/buffer.h"
#include "tensor/tensor.h"

// Devices: memory and streams of work. These are the interfaces; the CPU and CUDA implement them.
namespace motley::tensor {

// A point in a stream's work that other streams and the host can wait for: the last one recorded.
// If none was recorded, it has been reached.
class Event {
 public:
  virtual ~Event() = default;
  // Whether the work before it is done; does not wait.
  virtual Result<bool> reached() const = 0;
  virtual Result<void> synchronize() const = 0;
};

class Stream;

// Captured work that can be launched many times. It uses the addresses it was captured with, which
// must stay valid as long as it exists.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual Result<void> launch(Stream& stream) const = 0;
  // The number of captured kernels, copies and fills.
  virtual std::int64_t work_count() const = 0;
};

// An ordered queue of work. Memory that a call uses must stay valid until the stream has passed it;
// it is handed to another stream by an event. On the CPU every call is complete when it returns.
// Thread-safe; concurrent calls are queued in any order.
class Stream {
 public:
  virtual ~Stream() = default;

  // The argument for kernels.
  virtual StreamHandle handle() const = 0;

  // Copies in any direction between the host and this stream's device. Unpinned host memory has
  // been read when this returns; pinned memory must keep its contents until the stream has passed.
  virtual Result<void> copy(void* to, const void* from, std::size_t bytes) = 0;
  virtual Result<void> fill(void* to, std::byte value, std::size_t bytes) = 0;

  virtual Result<void> record(Event& event) = 0;
  // Records a new event.
  virtual Result<std::unique_ptr<Event>> record() = 0;
  // Makes later work wait for the point that the event denotes now.
  virtual Result<void> wait(const Event& event) = 0;
  virtual Result<void> synchronize() = 0;

  // Captures what `work` queues on this stream, and on streams that join it by events, instead of
  // running it. `unsupported` on the CPU, where nothing is queued. An error of `work` is returned,
  // and the stream stays usable.
  virtual Result<std::unique_ptr<Graph>> capture(FunctionRef<Result<void>()> work) = 0;
};

struct MemoryInfo {
  std::uint64_t total = 0;
  std::uint64_t available = 0;
};

class Device : public Allocator {
 public:
  virtual std::string description() const = 0;
  virtual Result<MemoryInfo> memory() const = 0;
  virtual Result<std::unique_ptr<Stream>> create_stream() = 0;
  virtual Result<std::unique_ptr<Event>> create_event() = 0;
  // Host memory that this device's streams copy asynchronously.
  virtual Allocator& pinned_memory() = 0;
};

// --device: "auto", "cpu", "cuda" or "cuda:N".
struct DeviceChoice {
  enum class Kind : std::uint8_t { automatic, cpu, cuda };
  Kind kind = Kind::automatic;
  int index = 0;
};
Result<DeviceChoice> parse_device(std::string_view text);
// `automatic` becomes the first GPU if that works, else the CPU.
DeviceChoice decide(DeviceChoice choice);
// The GPUs that CUDA shows; 0 where there is none, or no driver.
int gpu_count();

struct CpuOptions {
  int threads = 0;            // 0: every usable processor
  bool owns_machine = false;  // threads may be pinned to processors
};

// `automatic` opens the first GPU that works, else the CPU. A device must outlive its streams and
// buffers.
Result<std::unique_ptr<Device>> open_device(DeviceChoice choice, const CpuOptions& cpu = {});

// Copies between contiguous tensors of one dtype and shape, on any devices that the stream
// supports.
Result<void> copy_tensor(const ConstTensor& from, const Tensor& to, Stream& stream);

}  // namespace motley::tensor
