#include "kernels/cuda/primitives/device.h"

#include "base/cat.h"
#include "kernels/cuda/adapters/adapters.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/elementary/router.h"
#include "kernels/cuda/experts/grouped/kernels.h"
#include "kernels/cuda/experts/plan.h"
#include "kernels/cuda/linear/dense_kernels.h"
#include "kernels/cuda/linear/library.h"
#include "kernels/cuda/recurrence/recurrence.h"
#include "kernels/cuda/sampling/sampling.h"
#include "kernels/cuda/tuned_thresholds.h"

namespace motley::kernels::cuda {

Result<void> launched(cudaError_t status, std::string_view kernel) {
  if (status == cudaSuccess) return {};
  return Error(ErrorCode::internal,
               cat("the GPU failed to launch ", kernel, ": ", cudaGetErrorString(status)), "cuda",
               "restart; if it happens again, check the GPU with nvidia-smi");
}

Result<std::unique_ptr<Device>> Device::open(int index, const Tuning* tuning) {
  std::unique_ptr<Device> device(new Device());
  cudaError_t status = cudaSetDevice(index);
  if (status == cudaSuccess)
    status =
        cudaDeviceGetAttribute(&device->multiprocessors_, cudaDevAttrMultiProcessorCount, index);
  if (status != cudaSuccess)
    return Error(ErrorCode::internal,
                 cat("the GPU does not tell its size: ", cudaGetErrorString(status)), "cuda",
                 "restart; if it happens again, check the GPU with nvidia-smi");
  MOTLEY_TRY(device->thresholds_, DeviceThresholds::make(tuning));
  MOTLEY_TRY(device->encode_tensor_map_, find_tensor_map_encoder());
  MOTLEY_TRY(device->matmuls_, MatmulLibrary::open());
  MOTLEY_TRY_VOID(prepare_adapters());
  MOTLEY_TRY_VOID(prepare_attention());
  MOTLEY_TRY_VOID(prepare_plan());
  MOTLEY_TRY(device->experts_, grouped::PreparedKernels::prepare());
  MOTLEY_TRY_VOID(prepare_dense());
  MOTLEY_TRY_VOID(prepare_norm_and_route());
  MOTLEY_TRY_VOID(prepare_recurrence());
  MOTLEY_TRY_VOID(prepare_sampling());
  return device;
}

Device::~Device() = default;

void Device::keep(const Result<void>& launched) {
  if (launched.ok()) [[likely]]
    return;
  const std::lock_guard guard(lock_);
  if (!error_) error_ = launched.error();
}

Result<void> Device::first_error() const {
  const std::lock_guard guard(lock_);
  if (error_) return *error_;
  return {};
}

}  // namespace motley::kernels::cuda
