#pragma once

#include <filesystem>
#include <memory>

#include "lora/files/adapter.h"
#include "model/model.h"
#include "tensor/device/device.h"

namespace motley::score_tests {

struct ScaledFactors {
  const lora::Adapter* adapter = nullptr;
  double scale = 1;
};

// qwen3_moe's own weights with adapters merged into them, in float32. The adapters have factors on
// attention, routers and routed experts only.
std::unique_ptr<model::Model> load_merged(const std::filesystem::path& folder,
                                          const std::vector<ScaledFactors>& adapters,
                                          tensor::Device& device);

}  // namespace motley::score_tests
