#pragma once

#include <memory>
#include <vector>

#include "gpu/expert_world.h"
#include "lora/apply/step_table.h"
#include "lora/pages/pool.h"
#include "tensor/device/device.h"

namespace motley::gpu_tests {

// The GPU, open as long as the program runs.
tensor::Device& test_device();

// The layer of the model whose experts a world's adapters adapt.
inline constexpr int adapted_layer = 1;

lora::Adapter to_adapter(const WorldShape& shape, const WorldAdapter& adapter);

// A world's adapters in pages of the GPU with NaN around them, and tables of batches that use them.
class AdapterPages {
 public:
  AdapterPages(const WorldShape& shape, const std::vector<WorldAdapter>& adapters,
               const WorldMixes& mixes, lora::PageFormat format);

  // Of rows with these labels: places in the mixes, -1 for the base.
  std::unique_ptr<lora::StepTable> table(const std::vector<std::int32_t>& labels) const;

  int label_count() const { return static_cast<int>(mixes_.size()); }
  DType dtype() const { return pool_->dtype(); }
  // Of a label.
  int max_terms = 0;
  // Bounds, whatever the expert: of one factor, and of the packed columns of a label at a seam.
  int max_rank = 0;
  int max_columns[2] = {0, 0};

 private:
  std::unique_ptr<tensor::Stream> stream_;
  std::unique_ptr<lora::Pool> pool_;
  std::vector<lora::Mix> mixes_;  // by label
};

}  // namespace motley::gpu_tests
