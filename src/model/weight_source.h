#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "quant/config.h"
#include "quant/load.h"
#include "quant/weight.h"
#include "tensor/checkpoint.h"

namespace motley::model {

// Hands out a checkpoint's tensors by name and keeps count: what nobody took in the end is an
// error. The checkpoint stays mapped as long as weights made here live.
class WeightSource {
 public:
  WeightSource(const tensor::Checkpoint& checkpoint, const quant::Config& quantization,
               tensor::Allocator& allocator)
      : checkpoint_(&checkpoint), quantization_(&quantization), allocator_(&allocator) {}

  bool has(std::string_view name) const { return checkpoint_->find(name) != nullptr; }
  // Whether any tensor's name begins with "<module>.".
  bool has_module(std::string_view module) const;

  // A tensor of that name and shape, as it is stored: F32, F16 or BF16.
  Result<tensor::ConstTensor> tensor(std::string_view name, const tensor::Shape& shape);
  // A tensor's numbers as float32.
  Result<std::vector<float>> numbers(std::string_view name, const tensor::Shape& shape);
  Result<std::vector<float>> vector(std::string_view name, std::int64_t length) {
    return numbers(name, {length});
  }
  // <module>.weight, plain or quantised.
  Result<quant::Weight> matrix(std::string_view module, quant::TrueSize size);

  tensor::Allocator& allocator() const { return *allocator_; }

  // Every tensor that was not taken and that `skipped` does not allow is an error that names it.
  Result<void> finish(const std::function<bool(std::string_view)>& skipped) const;

 private:
  const tensor::Checkpoint* checkpoint_;
  const quant::Config* quantization_;
  tensor::Allocator* allocator_;
  std::set<std::string, std::less<>> taken_;
};

// Plain [out, in] matrix out of a fused [.., in, out] one: rows first, first + step, ... of the
// transpose.
Result<quant::Weight> transposed_rows(const tensor::ConstTensor& matrix, std::int64_t first,
                                      std::int64_t step, tensor::Allocator& allocator);

}  // namespace motley::model
