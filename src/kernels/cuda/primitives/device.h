// The state that kernels keep for one device. Nothing is shared with other instances or static in
// the process: two of these on one GPU behave like two GPUs.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <cuda_runtime_api.h>

#include "base/check.h"
#include "base/result.h"
#include "base/system/stream_handle.h"
#include "kernels/cuda/primitives/tensor_map.h"

namespace motley::kernels {
struct Tuning;  // tuning/tuning.h
}

namespace motley::kernels::cuda {

// Converts the status of a launch, or of a call that prepares one.
Result<void> launched(cudaError_t status, std::string_view kernel);

class DeviceThresholds;  // tuned_thresholds.h
class MatmulLibrary;     // linear/library.h
namespace grouped {
class PreparedKernels;  // experts/grouped/kernels.h
}

// Calls that queue work on a stream return nothing: a launch fails only by errors that are final
// for the device. The first one is kept here until the step checks. Calls at load return their
// errors.
class Device {
 public:
  // Opens libraries and sets the attributes of all kernels that need some; launches set none.
  // `tuning`, or null: rows in front of the built-in thresholds.
  static Result<std::unique_ptr<Device>> open(int index, const Tuning* tuning = nullptr);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device();

  int multiprocessors() const { return multiprocessors_; }
  MatmulLibrary& matmuls() const { return *matmuls_; }
  const DeviceThresholds& thresholds() const { return *thresholds_; }
  const grouped::PreparedKernels& experts() const { return *experts_; }
  TensorMapEncoder encode_tensor_map() const { return encode_tensor_map_; }

  // Logs the names of launches until set to null. For one thread that traces a step.
  void log_launches(std::vector<std::string>* log) { log_ = log; }
  void note_launch(std::string_view name) {
    if (log_ != nullptr) [[unlikely]]
      log_->emplace_back(name);
  }

  // Thread-safe.
  void keep(const Result<void>& launched);
  // The first error that was kept; it is never cleared.
  Result<void> first_error() const;

 private:
  Device() = default;

  int multiprocessors_ = 0;
  std::unique_ptr<MatmulLibrary> matmuls_;
  std::unique_ptr<grouped::PreparedKernels> experts_;
  TensorMapEncoder encode_tensor_map_ = nullptr;
  std::vector<std::string>* log_ = nullptr;
  mutable std::mutex lock_;
  std::optional<Error> error_;
  std::unique_ptr<const DeviceThresholds> thresholds_;
};

// The device of a stream that ElementaryTable::on() made.
inline Device& device_of(StreamHandle stream) {
  MOTLEY_CHECK(stream.device != nullptr, "a stream of the device's kernels");
  return *static_cast<Device*>(stream.device);
}

}  // namespace motley::kernels::cuda
