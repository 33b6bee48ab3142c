#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/requests/routed_experts.h"
#include "tensor/buffer.h"
#include "tensor/device/device.h"
#include "tensor/tensor.h"

namespace motley::engine {

// The experts that the rows of a chunk chose, in host memory: [layers, rows, top_k].
struct RoutedRows {
  const std::int32_t* ids = nullptr;  // of the first layer and row; null: they were not asked for
  std::int64_t layer_stride = 0;
  RoutedExpertsSizes sizes;
  const std::vector<bool>* has_experts = nullptr;  // by layer; null: all have

  // Appends those of rows [first, last), as requests get them.
  void append_to(std::vector<std::uint8_t>& all, std::int64_t first, std::int64_t last) const;
};

// Brings the experts that a step's rows chose to the host, with the step's other results.
class RoutedRowsReader {
 public:
  struct Options {
    RoutedExpertsSizes sizes;
    std::vector<bool> has_experts;  // by layer
    std::int64_t rows = 0;          // of a step
  };
  static Result<std::unique_ptr<RoutedRowsReader>> create(tensor::Device& device, Options options);

  const RoutedExpertsSizes& sizes() const { return options_.sizes; }
  // Queues the copy of [layers, rows, top_k] choices in device memory.
  Result<void> queue(const tensor::Tensor& choices, tensor::Stream& stream);
  // Of the step's rows from this one on; valid once the stream has passed, until the next queue().
  RoutedRows from(std::int64_t first_row) const;

 private:
  RoutedRowsReader(Options options, tensor::Buffer host)
      : options_(std::move(options)), host_(std::move(host)) {}

  Options options_;
  tensor::Buffer host_;
  std::int64_t rows_ = 0;  // of the last copy
};

}  // namespace motley::engine
