#include "runner/kv_memory.h"

#include <algorithm>

#include "base/cat.h"

namespace motley::runner {
namespace {

std::int64_t values_width(const model::CacheLayout& layout) {
  return layout.values_in_keys ? 0 : layout.value_width;
}

std::int64_t layer_page_bytes(const model::CacheLayout& layout, DType dtype) {
  return KvMemory::page_tokens * layout.heads * (layout.key_width + values_width(layout)) *
         bits(dtype) / 8;
}

std::int64_t aligned(std::int64_t bytes) {
  constexpr auto unit = static_cast<std::int64_t>(tensor::Allocator::alignment);
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

std::int64_t KvMemory::page_bytes(std::span<const model::CacheLayout> layouts, DType dtype) {
  std::int64_t bytes = 0;
  for (const model::CacheLayout& layout : layouts) bytes += layer_page_bytes(layout, dtype);
  return bytes;
}

Result<KvMemory> KvMemory::create(tensor::Allocator& allocator,
                                  std::span<const model::CacheLayout> layouts, DType dtype,
                                  std::int64_t pages) {
  KvMemory memory;
  memory.pages_ = pages;
  std::int64_t total = 0;
  for (const model::CacheLayout& layout : layouts)
    total += aligned(pages * layer_page_bytes(layout, dtype)) + aligned(1);
  MOTLEY_TRY(memory.memory_, allocator.allocate(static_cast<std::size_t>(total)));
  std::int64_t offset = 0;
  const auto place = [&](std::int64_t heads, std::int64_t width) {
    const tensor::Tensor view = memory.memory_.view(dtype, {pages, page_tokens, heads, width},
                                                    static_cast<std::size_t>(offset));
    offset += aligned(view.byte_count());
    return view;
  };
  for (const model::CacheLayout& layout : layouts) {
    model::LayerPages layer;
    layer.keys = place(layout.heads, layout.key_width);
    if (!layout.values_in_keys) layer.values = place(layout.heads, layout.value_width);
    memory.layers_.push_back(layer);
  }
  // Low page numbers are taken first.
  for (std::int64_t page = pages; page-- > 0;)
    memory.free_.push_back(static_cast<std::int32_t>(page));
  return memory;
}

std::int32_t KvMemory::take() {
  MOTLEY_CHECK(!free_.empty(), "a page is taken only where one is free");
  const std::int32_t page = free_.back();
  free_.pop_back();
  return page;
}

void KvMemory::give_back(std::int32_t page) {
  MOTLEY_DCHECK(std::ranges::find(free_, page) == free_.end(), "a page is given back once");
  free_.push_back(page);
}

Result<void> KvMemory::copy_page(std::int32_t from, std::int32_t to, tensor::Stream& stream) const {
  MOTLEY_CHECK(from >= 0 && from < pages_ && to >= 0 && to < pages_, "pages of this memory");
  for (const model::LayerPages& layer : layers_) {
    MOTLEY_TRY_VOID(tensor::copy_tensor(layer.keys.select(from), layer.keys.select(to), stream));
    if (layer.values.shape().rank() == 0) continue;
    MOTLEY_TRY_VOID(
        tensor::copy_tensor(layer.values.select(from), layer.values.select(to), stream));
  }
  return {};
}

}  // namespace motley::runner
