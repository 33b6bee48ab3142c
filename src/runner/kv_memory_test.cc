#include "runner/kv_memory.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/device/cpu_device.h"

namespace motley::runner {
namespace {

using model::CacheLayout;

const std::vector<CacheLayout> layouts = {
    {.heads = 3, .key_width = 20, .value_width = 12, .key_scale = 0.5F, .value_scale = 0.25F},
    {.heads = 1, .key_width = 40, .values_in_keys = true, .key_tail = 8},
    {.heads = 0, .key_width = 20, .value_width = 20}};  // of a rank without heads

// Every element's address, of some bytes each.
template <class Visit>
void each_element(const tensor::Tensor& x, const Visit& visit) {
  if (x.shape().rank() == 0) return visit(x.bytes());
  for (std::int64_t i = 0; i < x.dim(0); ++i) each_element(x.select(i), visit);
}

std::vector<tensor::Tensor> parts_of(const ops::KvPages& pages) {
  std::vector<tensor::Tensor> parts = {pages.numbers};
  if (pages.exponents.bytes() != nullptr) parts.push_back(pages.exponents);
  if (pages.tail_width() > 0) parts.push_back(pages.tail);
  return parts;
}
std::vector<tensor::Tensor> parts_of(const KvMemory& memory) {
  std::vector<tensor::Tensor> parts;
  for (const model::LayerPages& layer : memory.layers()) {
    for (const ops::KvPages* const half : {&layer.keys, &layer.values}) {
      if (!half->stored() || half->heads() == 0) continue;
      for (const tensor::Tensor& part : parts_of(*half)) parts.push_back(part);
    }
  }
  return parts;
}

TEST(KvMemory, CodesTakeHalfAndAnExponentForEachTokenAndHead) {
  const auto bytes = [](const CacheLayout& layout, DType dtype) {
    return KvMemory::page_bytes(std::span(&layout, 1), dtype);
  };
  EXPECT_EQ(bytes(layouts[0], DType::bf16), 16 * 3 * (20 + 12) * 2);
  EXPECT_EQ(bytes(layouts[0], DType::f8_e4m3), 16 * 3 * (20 + 12 + 2));
  EXPECT_EQ(bytes(layouts[1], DType::bf16), 16 * 40 * 2);
  EXPECT_EQ(bytes(layouts[1], DType::f8_e4m3), 16 * (32 + 8 * 2 + 1));
  EXPECT_EQ(bytes(layouts[2], DType::f8_e4m3), 0);
}

TEST(KvMemory, PartsOfPagesDoNotOverlapAndFillThem) {
  tensor::CpuDevice device({.threads = 1});
  for (const DType dtype : {DType::f32, DType::bf16, DType::f8_e4m3}) {
    const KvMemory memory = KvMemory::create(device, layouts, dtype, 3).value();
    std::set<const std::byte*> taken;
    for (const tensor::Tensor& part : parts_of(memory)) {
      each_element(part, [&](const std::byte* at) {
        for (int byte = 0; byte < bits(part.dtype()) / 8; ++byte)
          EXPECT_TRUE(taken.insert(at + byte).second);
      });
    }
    EXPECT_EQ(static_cast<std::int64_t>(taken.size()), 3 * KvMemory::page_bytes(layouts, dtype));
  }
}

TEST(KvMemory, PagesOfCodesSayHowTheyAreScaled) {
  tensor::CpuDevice device({.threads = 1});
  const KvMemory memory = KvMemory::create(device, layouts, DType::f8_e4m3, 2).value();
  const auto layers = memory.layers();
  EXPECT_EQ(layers[0].keys.fixed_scale, 0.5F);
  EXPECT_EQ(layers[0].values.fixed_scale, 0.25F);
  EXPECT_EQ(layers[0].keys.width(), 20);
  EXPECT_EQ(layers[1].keys.fixed_scale, 0);
  EXPECT_EQ(layers[1].keys.width(), 40);
  EXPECT_EQ(layers[1].keys.tail_width(), 8);
  EXPECT_FALSE(layers[1].values.stored());
}

TEST(KvMemory, ACopiedPageHasTheBitsOfTheFirst) {
  tensor::CpuDevice device({.threads = 1});
  const auto stream = device.create_stream().value();
  for (const DType dtype : {DType::bf16, DType::f8_e4m3}) {
    const KvMemory memory = KvMemory::create(device, layouts, dtype, 4).value();
    unsigned next = 1;
    for (const tensor::Tensor& part : parts_of(memory)) {
      each_element(part, [&](std::byte* at) {
        for (int byte = 0; byte < bits(part.dtype()) / 8; ++byte)
          at[byte] = static_cast<std::byte>((next = next * 1103515245U + 12345U) >> 16);
      });
    }
    ASSERT_TRUE(memory.copy_page(2, 1, *stream).ok());
    ASSERT_TRUE(stream->synchronize().ok());
    for (const tensor::Tensor& part : parts_of(memory)) {
      const auto bytes_of = [&](std::int64_t page) {
        std::vector<std::byte> bytes;
        each_element(part.select(page), [&](const std::byte* at) {
          bytes.insert(bytes.end(), at, at + bits(part.dtype()) / 8);
        });
        return bytes;
      };
      EXPECT_EQ(bytes_of(1), bytes_of(2));
      EXPECT_NE(bytes_of(0), bytes_of(2));
    }
  }
}

}  // namespace
}  // namespace motley::runner
