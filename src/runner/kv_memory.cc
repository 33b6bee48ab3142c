#include "runner/kv_memory.h"

#include <algorithm>

#include "base/cat.h"
#include "kernels/recurrence.h"

namespace motley::runner {

static_assert(model::page_tokens == kernels::state_page,
              "snapshots of states stand where pages of keys and values end");

namespace {

// The keys or the values of one layer.
struct Half {
  std::int64_t heads = 0;
  std::int64_t width = 0;  // the tail's included
  std::int64_t tail = 0;   // columns that are no codes
  float scale = 0;

  std::int64_t numbers() const { return KvMemory::page_tokens * heads * (width - tail); }
  std::int64_t page_bytes(DType dtype) const {
    if (dtype != DType::f8_e4m3) return KvMemory::page_tokens * heads * width * bits(dtype) / 8;
    const std::int64_t tails = KvMemory::page_tokens * heads * tail * bits(DType::bf16) / 8;
    return numbers() + tails + KvMemory::page_tokens * heads;
  }
};

Half keys_of(const model::CacheLayout& layout) {
  return {layout.heads, layout.key_width, layout.key_tail, layout.key_scale};
}
// Without width where they are in the keys.
Half values_of(const model::CacheLayout& layout) {
  if (layout.values_in_keys) return {};
  return {layout.heads, layout.value_width, 0, layout.value_scale};
}

std::int64_t layer_page_bytes(const model::CacheLayout& layout, DType dtype) {
  return keys_of(layout).page_bytes(dtype) + values_of(layout).page_bytes(dtype);
}

// A page of codes: [page_tokens, heads, width] codes, then the tail, then [heads, page_tokens]
// exponents.
ops::KvPages divide(const tensor::Tensor& block, const Half& half, DType dtype) {
  const std::int64_t pages = block.dim(0);
  constexpr std::int64_t tokens = KvMemory::page_tokens;
  const auto as = [&](DType type) {
    return tensor::Tensor(block.bytes(), type, {pages, block.dim(1) * 8 / bits(type)},
                          block.device());
  };
  const std::int64_t width = half.width - half.tail;
  if (dtype != DType::f8_e4m3 || half.heads == 0)
    return tensor::Tensor(block.bytes(), dtype, {pages, tokens, half.heads, half.width},
                          block.device());
  ops::KvPages made =
      as(dtype).slice(1, 0, half.numbers()).split(1, half.heads * width).split(2, width);
  if (half.tail > 0) {
    const std::int64_t first = half.numbers() / 2;
    made.tail = as(DType::bf16)
                    .slice(1, first, first + tokens * half.tail)
                    .split(1, half.tail)
                    .split(2, half.tail);
  }
  const std::int64_t end = block.dim(1);
  made.exponents = as(DType::u8).slice(1, end - tokens * half.heads, end).split(1, tokens);
  made.fixed_scale = half.scale;
  return made;
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
  const auto place = [&](const Half& half) {
    const tensor::Tensor block = memory.memory_.view(DType::u8, {pages, half.page_bytes(dtype)},
                                                     static_cast<std::size_t>(offset));
    offset += aligned(block.byte_count());
    memory.blocks_.push_back(block);
    return divide(block, half, dtype);
  };
  for (const model::CacheLayout& layout : layouts) {
    model::LayerPages layer;
    layer.keys = place(keys_of(layout));
    if (!layout.values_in_keys) layer.values = place(values_of(layout));
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
  for (const tensor::Tensor& block : blocks_)
    MOTLEY_TRY_VOID(tensor::copy_tensor(block.select(from), block.select(to), stream));
  return {};
}

}  // namespace motley::runner
