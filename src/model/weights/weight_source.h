#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/shard.h"
#include "model/weights/fused_parts.h"
#include "model/weights/random_weights.h"
#include "model/weights/stored_names.h"
#include "model/weights/vector.h"
#include "quant/config.h"
#include "quant/load.h"
#include "quant/weight.h"
#include "tensor/device/device.h"
#include "tensor/safetensors/checkpoint.h"

namespace motley::model {

// Which expert of a fused module, of how many, and which of its rows.
struct FusedShare {
  std::int64_t experts = 0;
  std::int64_t expert = 0;
  FusedParts::Rows rows = FusedParts::Rows::all;
};

// A rank's part of a weight, and the whole in host memory if there is one beside it.
struct PartOfWeight {
  quant::Weight own;
  quant::Weight whole;
};

// Hands out a checkpoint's tensors by name (as StoredNames explains), and records them: a tensor
// that is never used is an error. The checkpoint stays mapped as long as weights made here exist.
// Random weights may replace the checkpoint; they have every tensor.
class WeightSource {
 public:
  struct Memory {
    tensor::Allocator& host;              // for tensors that are converted
    tensor::Device& device;               // that the model runs on
    quant::Uploader* uploader = nullptr;  // null: the device is the CPU
    bool exact = true;  // types that the device does not support become f32, else bf16
    Shard shard = {};   // of the model, that this rank reads
  };

  WeightSource(const tensor::Checkpoint& checkpoint, const quant::Config& quantization,
               const Memory& memory)
      : checkpoint_(&checkpoint),
        quantization_(&quantization),
        names_(checkpoint),
        memory_(memory) {}
  WeightSource(const RandomWeights& random, const Memory& memory)
      : random_(&random), memory_(memory) {}

  // Random weights do not have optional tensors.
  bool has(std::string_view name) const {
    return random_ == nullptr && checkpoint_->find(names_.stored(name)) != nullptr;
  }
  bool has(std::string_view name, const tensor::Shape& shape) const;
  // Whether the name of any tensor begins with "<module>.".
  bool has_module(std::string_view module) const;

  // A tensor of that name and shape, as it is stored: F32, F16 or BF16.
  Result<tensor::ConstTensor> tensor(std::string_view name, const tensor::Shape& shape);
  // A tensor of one number, whatever its shape; nothing if it is not there or has more of them.
  Result<std::optional<float>> number(std::string_view name);
  // A tensor's numbers as float32.
  Result<std::vector<float>> numbers(std::string_view name, const tensor::Shape& shape);
  // The same in the memory of the model's device; those of some ranges, if there are any.
  Result<Vector> vector(std::string_view name, std::int64_t length,
                        const std::optional<dist::Ranges>& ranges = {});
  // Numbers in that memory, or those of some ranges.
  Result<Vector> vector(std::span<const float> numbers,
                        const std::optional<dist::Ranges>& ranges = {}) const;
  // A norm's weight, which multiplies by 1 + w in the files of some families.
  Result<Vector> norm(std::string_view name, std::int64_t length, bool adds_one,
                      const std::optional<dist::Ranges>& ranges = {});
  // Tensors whose names begin so are other ranks': they count as used, and are not read.
  void leave_to_others(std::string_view prefix);
  // Whether its scheme has an order of inputs; single weights may lack it.
  bool has_input_order(std::string_view module) const;
  // Whether products of both modules' weights round their inputs alike, by the files'
  // configuration.
  bool round_inputs_alike(std::string_view first, std::string_view second) const;
  // <module>.weight, unquantised or quantised, in host memory.
  Result<quant::Weight> matrix(std::string_view module, quant::TrueSize size);

  // A part of it; that of all if the cut is empty. Formats that can't be cut are an error.
  Result<PartOfWeight> matrix(std::string_view module, quant::TrueSize size, const Cut& cut);

  // One expert's quantised matrix of those that are fused over experts.
  Result<quant::Weight> matrix(std::string_view module, quant::TrueSize size,
                               const FusedShare& share);
  // Whether quantised experts are fused under that name.
  bool has_fused_codes(std::string_view module) const {
    return random_ == nullptr && FusedParts::has(*checkpoint_, names_.stored(module));
  }
  // A tensor of packed codes, of that type and shape, as it is stored.
  Result<tensor::ConstTensor> codes(std::string_view name, DType type, const tensor::Shape& shape);

  // A weight of the host's memory where the device's products read it; there when the uploader has
  // finished. What they don't read is decoded. Not for the CPU, which reads weights where they are.
  Result<quant::Weight> resident(const quant::Weight& weight);
  // For products with float32 rows: the weight is float32, too, unless products are exact in any
  // format.
  Result<quant::Weight> resident_for_float32(const quant::Weight& weight);

  const Memory& memory() const { return memory_; }

  // A source of the same checkpoint for another thread, with its own uploader. The tensors it used
  // are recorded here when it is merged back.
  WeightSource beside(quant::Uploader* uploader) const;
  void merge(WeightSource&& other);
  // The number of weights that were decoded.
  std::int64_t decoded() const { return decoded_; }
  // The number of weights with zero points of which programs differ (quant/load.h).
  std::int64_t disputed() const { return disputed_; }

  // An error names every tensor that was not used and that `skipped` does not allow.
  Result<void> finish(const std::function<bool(std::string_view)>& skipped) const;

 private:
  void take_zero_bias(std::string_view stored_module);

  const RandomWeights* random_ = nullptr;  // or the two below
  const tensor::Checkpoint* checkpoint_ = nullptr;
  const quant::Config* quantization_ = nullptr;
  StoredNames names_;
  Memory memory_;
  std::set<std::string, std::less<>> taken_;
  std::int64_t decoded_ = 0;
  std::int64_t disputed_ = 0;
};

// A plain [out, in] matrix from a fused [.., in, out] one: rows first, first + step, ... below end
// of its transpose. The allocator is the host's.
struct TransposedRows {
  std::int64_t first = 0;
  std::int64_t end = 0;
  std::int64_t step = 1;
};
Result<quant::Weight> transposed_rows(const tensor::ConstTensor& matrix, const TransposedRows& rows,
                                      tensor::Allocator& allocator);

}  // namespace motley::model
