#include "tensor/device/device.h"

#include <charconv>

#include "base/cat.h"
#include "tensor/device/cpu_device.h"
#include "tensor/device/cuda_device.h"

namespace motley::tensor {

std::string to_string(DeviceId device) {
  if (device.kind == DeviceKind::cpu) return "cpu";
  return cat("cuda:", device.index);
}

Result<DeviceChoice> parse_device(std::string_view text) {
  using Kind = DeviceChoice::Kind;
  if (text == "auto") return DeviceChoice{.kind = Kind::automatic};
  if (text == "cpu") return DeviceChoice{.kind = Kind::cpu};
  if (text == "cuda") return DeviceChoice{.kind = Kind::cuda};
  constexpr std::string_view prefix = "cuda:";
  if (text.starts_with(prefix)) {
    const std::string_view digits = text.substr(prefix.size());
    std::int16_t index = 0;
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (parsed.ec == std::errc() && parsed.ptr == digits.data() + digits.size() && index >= 0)
      return DeviceChoice{.kind = Kind::cuda, .index = index};
  }
  return Error(ErrorCode::invalid_argument, cat("unknown device ", quote(text)), "--device",
               "use auto, cpu, cuda or cuda:N");
}

DeviceChoice decide(DeviceChoice choice) {
  using Kind = DeviceChoice::Kind;
  if (choice.kind == Kind::automatic)
    choice.kind = open_cuda_device(0).ok() ? Kind::cuda : Kind::cpu;
  return choice;
}

int gpu_count() { return count_cuda_devices(); }

Result<std::unique_ptr<Device>> open_device(DeviceChoice choice, const CpuOptions& cpu) {
  using Kind = DeviceChoice::Kind;
  if (choice.kind == Kind::cuda) return open_cuda_device(choice.index);
  if (choice.kind == Kind::automatic) {
    auto gpu = open_cuda_device(0);
    if (gpu.ok()) return gpu;
  }
  return std::unique_ptr<Device>(std::make_unique<CpuDevice>(cpu));
}

Result<void> copy_tensor(const ConstTensor& from, const Tensor& to, Stream& stream) {
  MOTLEY_CHECK(from.dtype() == to.dtype() && from.shape() == to.shape() && from.is_contiguous() &&
                   to.is_contiguous(),
               "a copy is between contiguous tensors of one dtype and shape");
  return stream.copy(to.bytes(), from.bytes(), static_cast<std::size_t>(from.byte_count()));
}

}  // namespace motley::tensor
