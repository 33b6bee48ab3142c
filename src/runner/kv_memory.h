#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/step.h"
#include "tensor/buffer.h"
#include "tensor/device/device.h"

namespace motley::runner {

// What all layers keep for each token, keys and values most of all, in pages of a fixed number of
// tokens. A page number denotes that page in every cache of every layer; the model defines its
// contents. Codes (f8_e4m3) have their exponents, and
// the columns that stay bf16, in the same page behind them, so that whatever copies or shares a
// page keeps its numbers.
class KvMemory {
 public:
  static constexpr std::int64_t page_tokens = model::page_tokens;

  KvMemory() = default;  // without pages
  static Result<KvMemory> create(tensor::Allocator& allocator,
                                 std::span<const model::TokenCaches> layers, DType dtype,
                                 std::int64_t pages);

  // Bytes of one page over all layers.
  static std::int64_t page_bytes(std::span<const model::TokenCaches> layers, DType dtype);
  static std::int64_t pages_for(std::int64_t tokens) {
    return (tokens + page_tokens - 1) / page_tokens;
  }

  std::span<const model::LayerPages> layers() const { return layers_; }
  // All of it: u8 [pages, bytes of a page], of each cache.
  std::span<const tensor::Tensor> memory() const { return blocks_; }
  std::int64_t pages() const { return pages_; }
  std::int64_t free_pages() const { return static_cast<std::int64_t>(free_.size()); }

  // Takes a free page; there must be one.
  std::int32_t take();
  void give_back(std::int32_t page);

  // Copies the contents of page `from`, in the order of the stream.
  Result<void> copy_page(std::int32_t from, std::int32_t to, tensor::Stream& stream) const;

 private:
  tensor::Buffer memory_;
  std::vector<model::LayerPages> layers_;
  std::vector<tensor::Tensor> blocks_;
  std::vector<std::int32_t> free_;  // free pages; the last is taken next
  std::int64_t pages_ = 0;
};

// A sequence's pages, returned on destruction.
class PageList {
 public:
  explicit PageList(KvMemory* memory) : memory_(memory) {}
  PageList(PageList&& other) noexcept
      : memory_(other.memory_), pages_(std::exchange(other.pages_, {})) {}
  PageList& operator=(PageList&&) = delete;
  ~PageList() {
    for (const std::int32_t page : pages_) memory_->give_back(page);
  }

  // Grows to hold this many tokens; enough pages must be free.
  void grow_to(std::int64_t tokens) {
    while (static_cast<std::int64_t>(pages_.size()) < KvMemory::pages_for(tokens))
      pages_.push_back(memory_->take());
  }
  std::span<const std::int32_t> pages() const { return pages_; }

 private:
  KvMemory* memory_;
  std::vector<std::int32_t> pages_;
};

}  // namespace motley::runner
