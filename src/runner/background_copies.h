#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "tensor/device/device.h"

namespace motley::runner {

// Copies on a stream of their own, next to steps. They end in the order in which they begin.
class BackgroundCopies {
 public:
  BackgroundCopies() = default;  // none can begin
  // `most`: under way at once.
  static Result<BackgroundCopies> create(tensor::Device& device, std::int64_t most);

  // What `copy` queues begins after all work that `before` has now.
  Result<void> begin(tensor::Stream& before,
                     FunctionRef<Result<void>(tensor::Stream& stream)> copy);
  // How many of those that ever began have ended. Does not wait.
  Result<std::uint64_t> ended();
  // Waits for all.
  Result<void> finish();

 private:
  std::unique_ptr<tensor::Stream> stream_;
  std::unique_ptr<tensor::Event> before_;
  std::vector<std::unique_ptr<tensor::Event>> ends_;  // a ring: of copy i at i % size
  std::uint64_t begun_ = 0;
  std::uint64_t ended_ = 0;
};

}  // namespace motley::runner
