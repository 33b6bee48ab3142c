#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
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
//
// Callers decide which sequence has which page: the engine's KvPages, or ConsecutivePages.
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

  // Copies the contents of page `from`, in the order of the stream.
  Result<void> copy_page(std::int32_t from, std::int32_t to, tensor::Stream& stream) const;

 private:
  tensor::Buffer memory_;
  std::vector<model::LayerPages> layers_;
  std::vector<tensor::Tensor> blocks_;
  std::int64_t pages_ = 0;
};

// Gives out a memory's pages one after the other, for callers whose sequences all stay: no page
// comes back. A copy gives out the same pages again.
class ConsecutivePages {
 public:
  explicit ConsecutivePages(const KvMemory& memory) : pages_(memory.pages()) {}

  // Lengthens a sequence's list so that it holds this many tokens.
  void grow(std::vector<std::int32_t>& list, std::int64_t tokens) {
    while (static_cast<std::int64_t>(list.size()) < KvMemory::pages_for(tokens)) {
      MOTLEY_CHECK(next_ < pages_, "pages for all sequences");
      list.push_back(static_cast<std::int32_t>(next_++));
    }
  }
  // Of a new sequence.
  std::vector<std::int32_t> take(std::int64_t tokens) {
    std::vector<std::int32_t> list;
    grow(list, tokens);
    return list;
  }

 private:
  std::int64_t pages_;
  std::int64_t next_ = 0;
};

}  // namespace motley::runner
