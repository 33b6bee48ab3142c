#include "engine/execution/routed_rows.h"

#include <span>
#include <utility>

#include "base/check.h"

namespace motley::engine {

void RoutedRows::append_to(std::vector<std::uint8_t>& all, std::int64_t first,
                           std::int64_t last) const {
  const bool wide = sizes.bytes_each() > 1;
  all.reserve(all.size() + static_cast<std::size_t>(last - first) * sizes.bytes_of_token());
  for (std::int64_t row = first; row < last; ++row) {
    for (std::int64_t layer = 0; layer < sizes.layers; ++layer) {
      const bool routes = has_experts == nullptr || (*has_experts)[static_cast<std::size_t>(layer)];
      if (!routes) {
        all.resize(all.size() + static_cast<std::size_t>(sizes.top_k * sizes.bytes_each()));
        continue;
      }
      const std::int32_t* const chosen = ids + layer * layer_stride + row * sizes.top_k;
      for (const std::int32_t id : std::span(chosen, static_cast<std::size_t>(sizes.top_k))) {
        const auto number = static_cast<std::uint32_t>(id);
        all.push_back(static_cast<std::uint8_t>(number & 0xFFU));
        if (wide) all.push_back(static_cast<std::uint8_t>(number >> 8U & 0xFFU));
      }
    }
  }
}

Result<std::unique_ptr<RoutedRowsReader>> RoutedRowsReader::create(tensor::Device& device,
                                                                   Options options) {
  const RoutedExpertsSizes& sizes = options.sizes;
  const auto ids = static_cast<std::size_t>(sizes.layers * options.rows * sizes.top_k);
  MOTLEY_TRY(tensor::Buffer host, device.pinned_memory().allocate(ids * sizeof(std::int32_t)));
  return std::unique_ptr<RoutedRowsReader>(
      new RoutedRowsReader(std::move(options), std::move(host)));
}

Result<void> RoutedRowsReader::queue(const tensor::Tensor& choices, tensor::Stream& stream) {
  const auto bytes = static_cast<std::size_t>(choices.shape().elements()) * sizeof(std::int32_t);
  MOTLEY_CHECK(bytes <= host_.size(), "a step of as many rows as there is memory for");
  rows_ = choices.dim(1);
  return stream.copy(host_.data(), choices.bytes(), bytes);
}

RoutedRows RoutedRowsReader::from(std::int64_t first_row) const {
  const auto* const ids = reinterpret_cast<const std::int32_t*>(host_.data());
  const RoutedExpertsSizes& sizes = options_.sizes;
  return {.ids = ids + first_row * sizes.top_k,
          .layer_stride = rows_ * sizes.top_k,
          .sizes = sizes,
          .has_experts = &options_.has_experts};
}

}  // namespace motley::engine
