#include "runner/kv_memory.h"

#include <algorithm>

#include "base/cat.h"
#include "kernels/recurrence.h"

namespace motley::runner {

static_assert(model::page_tokens == kernels::state_page,
              "snapshots of states stand where pages of keys and values end");

namespace {

DType type_of(const model::TokenCache& cache, DType dtype) { return cache.type.value_or(dtype); }

// Of a page: without a tail.
std::int64_t numbers(const model::TokenCache& cache) {
  return KvMemory::page_tokens * cache.heads * (cache.width - cache.tail);
}

std::int64_t cache_page_bytes(const model::TokenCache& cache, DType dtype) {
  const DType type = type_of(cache, dtype);
  constexpr std::int64_t tokens = KvMemory::page_tokens;
  if (type != DType::f8_e4m3) return tokens * cache.heads * cache.width * bits(type) / 8;
  const std::int64_t tails = tokens * cache.heads * cache.tail * bits(DType::bf16) / 8;
  return numbers(cache) + tails + tokens * cache.heads;
}

std::int64_t layer_page_bytes(const model::TokenCaches& caches, DType dtype) {
  std::int64_t bytes = 0;
  for (const model::TokenCache& cache : caches) bytes += cache_page_bytes(cache, dtype);
  return bytes;
}

// A page of codes: [page_tokens, heads, width] codes, then the tail, then [heads, page_tokens]
// exponents.
ops::KvPages divide(const tensor::Tensor& block, const model::TokenCache& cache, DType dtype) {
  const DType type = type_of(cache, dtype);
  const std::int64_t pages = block.dim(0);
  constexpr std::int64_t tokens = KvMemory::page_tokens;
  const auto as = [&](DType each) {
    return tensor::Tensor(block.bytes(), each, {pages, block.dim(1) * 8 / bits(each)},
                          block.device());
  };
  const std::int64_t width = cache.width - cache.tail;
  if (type != DType::f8_e4m3 || cache.heads == 0)
    return tensor::Tensor(block.bytes(), type, {pages, tokens, cache.heads, cache.width},
                          block.device());
  ops::KvPages made =
      as(type).slice(1, 0, numbers(cache)).split(1, cache.heads * width).split(2, width);
  if (cache.tail > 0) {
    const std::int64_t first = numbers(cache) / 2;
    made.tail = as(DType::bf16)
                    .slice(1, first, first + tokens * cache.tail)
                    .split(1, cache.tail)
                    .split(2, cache.tail);
  }
  const std::int64_t end = block.dim(1);
  made.exponents = as(DType::u8).slice(1, end - tokens * cache.heads, end).split(1, tokens);
  made.fixed_scale = cache.scale;
  return made;
}

std::int64_t aligned(std::int64_t bytes) {
  constexpr auto unit = static_cast<std::int64_t>(tensor::Allocator::alignment);
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

std::int64_t KvMemory::page_bytes(std::span<const model::TokenCaches> layers, DType dtype) {
  std::int64_t bytes = 0;
  for (const model::TokenCaches& caches : layers) bytes += layer_page_bytes(caches, dtype);
  return bytes;
}

Result<KvMemory> KvMemory::create(tensor::Allocator& allocator,
                                  std::span<const model::TokenCaches> layers, DType dtype,
                                  std::int64_t pages) {
  KvMemory memory;
  memory.pages_ = pages;
  std::int64_t total = 0;
  for (const model::TokenCaches& caches : layers)
    for (const model::TokenCache& cache : caches)
      total += aligned(pages * cache_page_bytes(cache, dtype));
  MOTLEY_TRY(memory.memory_,
             allocator.allocate(static_cast<std::size_t>(std::max<std::int64_t>(total, 1))));
  std::int64_t offset = 0;
  for (const model::TokenCaches& caches : layers) {
    model::LayerPages& layer = memory.layers_.emplace_back();
    for (const model::TokenCache& cache : caches) {
      const tensor::Tensor block = memory.memory_.view(
          DType::u8, {pages, cache_page_bytes(cache, dtype)}, static_cast<std::size_t>(offset));
      offset += aligned(block.byte_count());
      memory.blocks_.push_back(block);
      layer.push_back(divide(block, cache, dtype));
    }
  }
  return memory;
}

Result<void> KvMemory::copy_page(std::int32_t from, std::int32_t to, tensor::Stream& stream) const {
  MOTLEY_CHECK(from >= 0 && from < pages_ && to >= 0 && to < pages_, "pages of this memory");
  for (const tensor::Tensor& block : blocks_)
    MOTLEY_TRY_VOID(tensor::copy_tensor(block.select(from), block.select(to), stream));
  return {};
}

}  // namespace motley::runner
