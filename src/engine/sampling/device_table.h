#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "tensor/buffer.h"
#include "tensor/device/device.h"

namespace motley::engine {

// A table in device memory, and its copy in pinned host memory.
struct DeviceTable {
  static Result<DeviceTable> create(tensor::Device& device, std::int64_t bytes) {
    const auto size = static_cast<std::size_t>(bytes);
    DeviceTable table;
    MOTLEY_TRY(table.device, device.allocate(size));
    MOTLEY_TRY(table.host, device.pinned_memory().allocate(size));
    return table;
  }

  template <class T>
  T* on_host() const {
    return reinterpret_cast<T*>(host.data());
  }
  template <class T>
  T* on_device() const {
    return reinterpret_cast<T*>(device.data());
  }
  // Copies elements [begin, end) to the device.
  template <class T>
  Result<void> upload(std::int64_t begin, std::int64_t end, tensor::Stream& stream) const {
    if (begin == end) return {};
    return stream.copy(on_device<T>() + begin, on_host<T>() + begin,
                       static_cast<std::size_t>(end - begin) * sizeof(T));
  }
  // Copies the first bytes to the host.
  Result<void> download(std::int64_t bytes, tensor::Stream& stream) const {
    return stream.copy(host.data(), device.data(), static_cast<std::size_t>(bytes));
  }

  tensor::Buffer device;
  tensor::Buffer host;
};

}  // namespace motley::engine
