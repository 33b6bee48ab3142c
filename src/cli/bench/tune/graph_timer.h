#pragma once

#include <memory>

#include "base/function_ref.h"
#include "base/result.h"
#include "kernels/elementary.h"
#include "tensor/device/device.h"

namespace motley::cli {

// Times launches of a GPU's kernels in a captured graph, as steps run them.
class GraphTimer {
 public:
  // Queues launch number i.
  using Launch = FunctionRef<void(int i, StreamHandle stream)>;

  static Result<std::unique_ptr<GraphTimer>> create(tensor::Device& device,
                                                    const kernels::ElementaryTable& kernels);

  tensor::Stream& stream() { return *stream_; }
  StreamHandle handle() const { return kernels_.on(stream_->handle()); }

  // us of one of `launches` launches: the median of some replays, or a single replay if that takes
  // longer than `limit_us`. `begin` queues what comes once, before them.
  Result<double> time(int launches, FunctionRef<void(StreamHandle)> begin, Launch launch,
                      double limit_us);

 private:
  GraphTimer(const kernels::ElementaryTable& kernels, std::unique_ptr<tensor::Stream> stream)
      : kernels_(kernels), stream_(std::move(stream)) {}

  // Seconds of so many replays, one behind the other.
  Result<double> replay(const tensor::Graph& graph, int replays);

  const kernels::ElementaryTable& kernels_;
  std::unique_ptr<tensor::Stream> stream_;
};

// Small random numbers in bf16.
Result<void> fill_random(tensor::Stream& stream, std::byte* to, std::size_t bytes);

}  // namespace motley::cli
