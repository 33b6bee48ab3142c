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

// Where numbers live and where work is queued. The faces are here, the CPU and CUDA behind them.
namespace motley::tensor {

// A point in a stream's work that other streams and the host can wait for: the one that was
// recorded last. Without any it is reached.
class Event {
 public:
  virtual ~Event() = default;
  // Whether the work before it is done, without waiting.
  virtual Result<bool> reached() const = 0;
  virtual Result<void> synchronize() const = 0;
};

class Stream;

// Captured work, to be queued again and again. It reads and writes the addresses that it was
// captured with, so these must stay as long as it does.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual Result<void> launch(Stream& stream) const = 0;
  // Kernels, copies and fills that it was captured with.
  virtual std::int64_t work_count() const = 0;
};

// Work in order. What a call reads or writes must stay until the stream has passed it; memory that
// moves on to another stream does so through an event. On the CPU every call is done when it
// returns. Any thread may call; what several queue at once comes in some order.
class Stream {
 public:
  virtual ~Stream() = default;

  // What kernels take.
  virtual StreamHandle handle() const = 0;

  // Any direction between host and this stream's device. Host memory that is not pinned has been
  // read when this returns; pinned memory must keep its bytes until the stream has passed.
  virtual Result<void> copy(void* to, const void* from, std::size_t bytes) = 0;
  virtual Result<void> fill(void* to, std::byte value, std::size_t bytes) = 0;

  virtual Result<void> record(Event& event) = 0;
  // Into an event of its own.
  virtual Result<std::unique_ptr<Event>> record() = 0;
  // What is queued from now on runs after what the event stands for now.
  virtual Result<void> wait(const Event& event) = 0;
  virtual Result<void> synchronize() = 0;

  // Takes down what `work` queues on this stream, and on others that join it through events,
  // instead of running it. `unsupported` on the CPU, where nothing is queued. An error of `work`
  // is returned, and the stream is as good as before.
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
  // Host memory that this device's streams copy from and to without the host's help.
  virtual Allocator& pinned_memory() = 0;
};

// --device: "auto", "cpu", "cuda" or "cuda:N".
struct DeviceChoice {
  enum class Kind : std::uint8_t { automatic, cpu, cuda };
  Kind kind = Kind::automatic;
  int index = 0;
};
Result<DeviceChoice> parse_device(std::string_view text);

struct CpuOptions {
  int threads = 0;            // 0: every usable processor
  bool owns_machine = false;  // threads may be tied to processors
};

// Automatic takes the first GPU that works, else the CPU. A device must outlive its streams and
// buffers.
Result<std::unique_ptr<Device>> open_device(DeviceChoice choice, const CpuOptions& cpu = {});

// Copies between contiguous tensors of one dtype and shape, on any devices that the stream serves.
Result<void> copy_tensor(const ConstTensor& from, const Tensor& to, Stream& stream);

}  // namespace motley::tensor
