#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "quant/load.h"
#include "tensor/safetensors/checkpoint.h"
#include "tensor/tensor.h"

namespace motley::model {

// Quantised experts that are fused over experts: tensors [E, rows, ...] of codes, scales and zero
// points, named "<module>.weight_scale" or "<module>_scale". Hands out one expert's share of a part
// as if the expert were a module of its own.
class FusedParts {
 public:
  // Which rows of an expert.
  enum class Rows : std::uint8_t { all, first_half, second_half };  // gate is above up

  FusedParts(const tensor::Checkpoint& checkpoint, std::string module, std::int64_t experts)
      : checkpoint_(checkpoint), module_(std::move(module)), experts_(experts) {}

  // Whether the checkpoint has fused codes of that module.
  static bool has(const tensor::Checkpoint& checkpoint, std::string_view module);

  // The stored name of a part, "weight_scale"; nothing if there is none.
  std::optional<std::string> stored_name(std::string_view part) const;
  // One expert's share. Its halves must be whole rows of the part: others are an error on reading,
  // because the shape that is returned is the whole part's.
  std::optional<tensor::ConstTensor> share(std::string_view part, std::int64_t expert,
                                           Rows rows) const;

 private:
  const tensor::Checkpoint& checkpoint_;
  std::string module_;
  std::int64_t experts_;
};

}  // namespace motley::model
