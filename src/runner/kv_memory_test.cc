#include "runner/kv_memory.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/device/cpu_device.h"

namespace motley::runner {
namespace {

using model::TokenCaches;

const std::vector<TokenCaches> layers = {
    {{.heads = 3, .width = 20, .scale = 0.5F}, {.heads = 3, .width = 12, .scale = 0.25F}},
    {{.heads = 1, .width = 40, .tail = 8}},
    {{.heads = 0, .width = 20}, {.heads = 0, .width = 20}},  // of a rank without heads
    {},
    // With a third cache, of a type of its own.
    {{.heads = 2, .width = 16},
     {.heads = 2, .width = 16},
     {.heads = 1, .width = 24, .type = DType::f32}},
    {{.heads = 1, .width = 40, .tail = 8, .type = DType::bf16},
     {.heads = 1, .width = 16, .type = DType::f8_e4m3}}};

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
  for (const model::LayerPages& layer : memory.layers())
    for (const ops::KvPages& cache : layer)
      if (cache.heads() > 0) std::ranges::copy(parts_of(cache), std::back_inserter(parts));
  return parts;
}

TEST(KvMemory, CodesTakeHalfAndAnExponentForEachTokenAndHead) {
  const auto bytes = [](const TokenCaches& caches, DType dtype) {
    return KvMemory::page_bytes(std::span(&caches, 1), dtype);
  };
  EXPECT_EQ(bytes(layers[0], DType::bf16), 16 * 3 * (20 + 12) * 2);
  EXPECT_EQ(bytes(layers[0], DType::f8_e4m3), 16 * 3 * (20 + 12 + 2));
  EXPECT_EQ(bytes(layers[1], DType::bf16), 16 * 40 * 2);
  EXPECT_EQ(bytes(layers[1], DType::f8_e4m3), 16 * (32 + 8 * 2 + 1));
  EXPECT_EQ(bytes(layers[2], DType::f8_e4m3), 0);
  EXPECT_EQ(bytes(layers[3], DType::bf16), 0);
  EXPECT_EQ(bytes(layers[4], DType::f8_e4m3), 16 * (2 * 2 * (16 + 1) + 24 * 4));
  EXPECT_EQ(bytes(layers[5], DType::f32), 16 * (40 * 2 + 16 + 1));
}

TEST(KvMemory, PartsOfPagesDoNotOverlapAndFillThem) {
  tensor::CpuDevice device({.threads = 1});
  for (const DType dtype : {DType::f32, DType::bf16, DType::f8_e4m3}) {
    const KvMemory memory = KvMemory::create(device, layers, dtype, 3).value();
    std::set<const std::byte*> taken;
    for (const tensor::Tensor& part : parts_of(memory)) {
      each_element(part, [&](const std::byte* at) {
        for (int byte = 0; byte < bits(part.dtype()) / 8; ++byte)
          EXPECT_TRUE(taken.insert(at + byte).second);
      });
    }
    EXPECT_EQ(static_cast<std::int64_t>(taken.size()), 3 * KvMemory::page_bytes(layers, dtype));
  }
}

TEST(KvMemory, PagesOfCodesSayHowTheyAreScaled) {
  tensor::CpuDevice device({.threads = 1});
  const KvMemory memory = KvMemory::create(device, layers, DType::f8_e4m3, 2).value();
  const auto pages = memory.layers();
  EXPECT_EQ(pages[0][0].fixed_scale, 0.5F);
  EXPECT_EQ(pages[0][1].fixed_scale, 0.25F);
  EXPECT_EQ(pages[0][0].width(), 20);
  ASSERT_EQ(pages[1].size(), 1);
  EXPECT_EQ(pages[1][0].fixed_scale, 0);
  EXPECT_EQ(pages[1][0].width(), 40);
  EXPECT_EQ(pages[1][0].tail_width(), 8);
  EXPECT_TRUE(pages[4][1].coded());
  EXPECT_EQ(pages[4][2].numbers.dtype(), DType::f32);
  EXPECT_FALSE(pages[5][0].coded());
  EXPECT_TRUE(pages[5][1].coded());
}

TEST(KvMemory, ACopiedPageHasTheBitsOfTheFirst) {
  tensor::CpuDevice device({.threads = 1});
  const auto stream = device.create_stream().value();
  for (const DType dtype : {DType::bf16, DType::f8_e4m3}) {
    const KvMemory memory = KvMemory::create(device, layers, dtype, 4).value();
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
