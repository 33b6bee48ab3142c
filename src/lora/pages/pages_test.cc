#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <random>

#include <gtest/gtest.h>

#include "lora/pages/blobs.h"
#include "lora/pages/packed_layout.h"
#include "lora/pages/pool.h"
#include "lora/test_stored.h"
#include "lora/test_world.h"
#include "tensor/device/cpu_device.h"
#include "tensor/device/scripted_device.h"

// The contents of adapter memory in every format, and that every arena has the same.
namespace motley::lora {
namespace {

tensor::CpuDevice& device() {
  static tensor::CpuDevice cpu({.threads = 1});
  return cpu;
}

constexpr Pool::Options options_of(DType dtype, Layout experts) {
  return {.bytes = 8 << 20,
          .page_bytes = 16 << 10,
          .dtype = dtype,
          .experts = experts,
          .directory = true,
          .poison = true};
}

constexpr std::int64_t hidden = 136;
constexpr std::int64_t inner = 72;
constexpr int experts = 3;

// Attention of layer 0, experts of layer 2: expert 0 has gate and up of their own ranks, expert 1
// shares A between them, expert 2 has up alone. B of down is shared by all.
Adapter make_layers(std::uint32_t seed) {
  std::mt19937 random(seed);
  test::AdapterMaker maker(random);
  SiteDelta& q = maker.site({0, Projection::q}, hidden, 40);
  q.factors[0] = maker.factors(maker.add(17, hidden), maker.add(40, 17), 17, 0.25F);
  q.lora_bias = maker.add(1, 40);
  maker.site({-1, Projection::lm_head}, hidden, 9).replaced = maker.add(9, hidden);
  const int shared_a = maker.add(70, hidden);
  maker.site({2, Projection::expert_gate}, hidden, inner, experts).factors = {
      maker.factors(maker.add(5, hidden), maker.add(inner, 5), 5, 0.5F),
      maker.factors(shared_a, maker.add(inner, 70), 70, 2.0F),
      {}};
  maker.site({2, Projection::expert_up}, hidden, inner, experts).factors = {
      maker.factors(maker.add(12, hidden), maker.add(inner, 12), 12, 0.75F),
      maker.factors(shared_a, maker.add(inner, 70), 70, 2.0F),
      maker.factors(maker.add(1, hidden), maker.add(inner, 1), 1, 1.5F)};
  const int shared_b = maker.add(hidden, 16);
  std::vector<Factors> down;
  for (int e = 0; e < experts; ++e)
    down.push_back(maker.factors(maker.add(16, inner), shared_b, 16, 1.0F));
  maker.site({2, Projection::expert_down}, inner, hidden, experts).factors = down;
  return maker.done();
}

float number_at(const void* data, DType dtype, std::size_t at) {
  if (dtype == DType::f32) return static_cast<const float*>(data)[at];
  if (dtype == DType::bf16) return static_cast<const bf16*>(data)[at].to_float();
  return static_cast<const f8_e4m3*>(data)[at].to_float();
}

// Whether `stored` is a rounding of `number`: equal, or within half a unit of e4m3.
testing::AssertionResult stands_for(float stored, float scale, float number, DType dtype) {
  const float value = stored * scale;
  if (dtype != DType::f8_e4m3) {
    if (value == number) return testing::AssertionSuccess();  // numbers are exact in bf16
  } else {
    const float step = std::max(std::abs(number) / 16, scale * 0x1p-10F);
    if (std::abs(value - number) <= step) return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << stored << " x " << scale << " stands for " << number;
}

const Matrix& matrix(const Adapter& adapter, int index) {
  return adapter.matrices[static_cast<std::size_t>(index)];
}

void expect_rows(const kernels::FactorEntry& entry, const Adapter& adapter, const Factors& factors,
                 DType dtype) {
  ASSERT_EQ(entry.rank, factors.rank);
  if (factors.rank == 0) return;
  EXPECT_EQ(entry.split, padded_rank(factors.rank, dtype));
  EXPECT_EQ(entry.scale[0], factors.scale);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(entry.a) % 64, 0U);
  const Matrix& a = matrix(adapter, factors.a);
  const Matrix& b = matrix(adapter, factors.b);
  const float* const a_scales = row_scales(dtype, entry.a, entry.split, a.columns);
  const float* const b_scales = row_scales(dtype, entry.b, b.rows, entry.split);
  EXPECT_EQ(a_scales != nullptr, dtype == DType::f8_e4m3);
  const auto scale = [](const float* scales, std::int64_t row) {
    return scales == nullptr ? 1.0F : scales[row];
  };
  for (std::int64_t r = 0; r < entry.split; ++r) {
    for (std::int64_t k = 0; k < a.columns; ++k) {
      const float stored = number_at(entry.a, dtype, static_cast<std::size_t>(r * a.columns + k));
      ASSERT_TRUE(stands_for(stored, scale(a_scales, r), r < a.rows ? a.row(r)[k] : 0, dtype));
    }
    for (std::int64_t o = 0; o < b.rows; ++o) {
      const float stored = number_at(entry.b, dtype, static_cast<std::size_t>(o * entry.split + r));
      ASSERT_TRUE(stands_for(stored, scale(b_scales, o), r < b.columns ? b.row(o)[r] : 0, dtype));
    }
  }
}

TEST(Pages, HoldRowsInEveryType) {
  const Adapter adapter = make_layers(1);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f8_e4m3}) {
    const auto pool = Pool::create(device(), options_of(dtype, Layout::rows)).value();
    const Handle handle = pool->load("a", adapter).value();
    for (const SiteDelta& delta : adapter.sites) {
      const SiteView* const view = handle->find(delta.site);
      ASSERT_NE(view, nullptr);
      ASSERT_EQ(view->factors.size(), delta.factors.size());
      for (std::size_t e = 0; e < delta.factors.size(); ++e)
        expect_rows(view->factors[e], adapter, delta.factors[e], dtype);
    }
    // Tables and vectors are not in FP8.
    const SiteView* const head = handle->find({-1, Projection::lm_head});
    const DType table = dtype == DType::f32 ? DType::f32 : DType::bf16;
    for (std::int64_t i = 0; i < 9 * hidden; ++i) {
      const int place = adapter.find(head->site)->replaced;
      EXPECT_EQ(number_at(head->replaced, table, static_cast<std::size_t>(i)),
                matrix(adapter, place).values[static_cast<std::size_t>(i)]);
    }
    const SiteView* const q = handle->find({0, Projection::q});
    EXPECT_EQ(q->lora_bias[39], matrix(adapter, adapter.find(q->site)->lora_bias).values[39]);
  }
}

TEST(Pages, ScalesArePowersOfTwoAndNothingOverflows) {
  Matrix rows{7, 4, {}};
  for (const float largest : {0.0F, 1e-44F, 1e-30F, 1.0F, 448.0F, 449.0F, 3e38F}) {
    for (const float part : {1.0F, -0.5F, 0.01F, -1.0F}) rows.values.push_back(largest * part);
  }
  const std::vector<float> scales = scales_of_rows(rows);
  EXPECT_EQ(scales[0], 1.0F);
  EXPECT_EQ(scales[3], 0x1p-8F);
  EXPECT_EQ(scales[4], 1.0F);
  EXPECT_EQ(scales[5], 2.0F);
  for (std::size_t row = 0; row < scales.size(); ++row) {
    int exponent = 0;
    EXPECT_EQ(std::frexp(scales[row], &exponent), 0.5F);
    const float largest = rows.row(static_cast<std::int64_t>(row))[0];
    EXPECT_LE(largest / scales[row], 448.0F);
    const float stored = f8_e4m3::from(largest / scales[row]).to_float();
    EXPECT_TRUE(stands_for(stored, scales[row], largest, DType::f8_e4m3));
  }
}

// The place of 16-byte chunk c of row r, as the tensor cores expect it.
std::size_t chunk_of(std::size_t r, std::size_t c, std::size_t pitch) {
  switch (pitch) {
    case 128:
      return c ^ (r % 8);
    case 64:
      return c ^ (r / 2 % 4);
    case 32:
      return c ^ (r / 4 % 2);
    default:
      return c;
  }
}

// Number `at` of row r in a tile with rows of `width` numbers.
float tile_number(const std::byte* tile, std::size_t r, std::size_t at, std::size_t width,
                  DType dtype) {
  const std::size_t element = dtype == DType::bf16 ? 2 : 1;
  const std::size_t pitch = width * element;
  const std::size_t chunk = chunk_of(r, at * element / 16, pitch);
  return number_at(tile + r * pitch + chunk * 16, dtype, at % (16 / element));
}

struct SeamFactors {
  Factors first, second;
  bool shared_a = false;
  std::int64_t in = 0;
  std::int64_t out = 0;
  bool alternating = false;
};

void expect_packed(const kernels::FactorEntry& entry, const SeamFactors& seam,
                   const Adapter& adapter, DType dtype) {
  const std::int64_t in = seam.in;
  const std::int64_t out = seam.out;
  const bool alternating = seam.alternating;
  const std::size_t element = dtype == DType::bf16 ? 2 : 1;
  const std::int64_t split = (seam.first.rank + 7) / 8 * 8;
  const std::int64_t behind = seam.shared_a ? 0 : (seam.second.rank + 7) / 8 * 8;
  const std::int64_t columns = (split + behind + 15) / 16 * 16;
  ASSERT_EQ(entry.rank, columns);
  EXPECT_EQ(entry.split, split);
  EXPECT_EQ(entry.scale[0], seam.first.scale);
  EXPECT_EQ(entry.scale[1], seam.second.scale);
  const auto* const a = static_cast<const std::byte*>(entry.a);
  const auto* const b = static_cast<const std::byte*>(entry.b);
  const std::int64_t depth = (in + 127) / 128 * 128;
  const std::int64_t all_rows = ((alternating ? 2 * out : out) + 255) / 256 * 256;
  const auto scale = [&](const std::byte* packed, std::int64_t numbers, std::int64_t row) {
    if (dtype == DType::bf16) return 1.0F;
    return reinterpret_cast<const float*>(packed + numbers)[row];
  };
  for (std::int64_t column = 0; column < columns; ++column) {
    const bool is_second = column >= split;
    const Factors& factors = is_second ? seam.second : seam.first;
    const std::int64_t rank = is_second ? column - split : column;
    const bool real = rank < factors.rank && !(is_second && seam.shared_a);
    const std::int64_t block = column / 32;
    const std::int64_t rows = std::min<std::int64_t>(32, columns - block * 32);
    for (std::int64_t k = 0; k < depth; ++k) {
      const std::int64_t tile = block * 32 * depth + k / 64 * rows * 64;
      const float stored = tile_number(a + static_cast<std::size_t>(tile) * element,
                                       static_cast<std::size_t>(column % 32),
                                       static_cast<std::size_t>(k % 64), 64, dtype);
      const float number = real && k < in ? matrix(adapter, factors.a).row(rank)[k] : 0;
      ASSERT_TRUE(stands_for(stored, scale(a, columns * depth, column), number, dtype))
          << "A, column " << column << ", k " << k;
    }
  }
  for (std::int64_t row = 0; row < all_rows; ++row) {
    const bool is_second = alternating && row % 16 >= 8;
    const Factors& factors = is_second ? seam.second : seam.first;
    const std::int64_t from_row = alternating ? row / 16 * 8 + row % 8 : row;
    const std::int64_t begin = is_second && !seam.shared_a ? split : 0;
    for (std::int64_t column = 0; column < columns; ++column) {
      const std::int64_t tile = (row / 64 * (columns / 16) + column / 16) * 64 * 16;
      const float stored = tile_number(b + static_cast<std::size_t>(tile) * element,
                                       static_cast<std::size_t>(row % 64),
                                       static_cast<std::size_t>(column % 16), 16, dtype);
      const std::int64_t rank = column - begin;
      const bool real = from_row < out && rank >= 0 && rank < factors.rank;
      const float number = real ? matrix(adapter, factors.b).row(from_row)[rank] : 0;
      ASSERT_TRUE(stands_for(stored, scale(b, all_rows * columns, row), number, dtype))
          << "B, row " << row << ", column " << column;
    }
  }
}

TEST(Pages, HoldPackedFactorsThatTensorCoresRead) {
  const Adapter adapter = make_layers(2);
  for (const DType dtype : {DType::bf16, DType::f8_e4m3}) {
    const auto pool = Pool::create(device(), options_of(dtype, Layout::packed)).value();
    const Handle handle = pool->load("a", adapter).value();
    const auto of = [&](Projection projection, std::size_t expert) {
      return adapter.find({2, projection})->factors[expert];
    };
    const auto gate_up = handle->seam(2, 0);
    const auto down = handle->seam(2, 1);
    ASSERT_EQ(gate_up.size(), 3U);
    ASSERT_EQ(down.size(), 3U);
    for (std::size_t e = 0; e < 3; ++e) {
      expect_packed(gate_up[e],
                    {of(Projection::expert_gate, e), of(Projection::expert_up, e), e == 1, hidden,
                     inner, true},
                    adapter, dtype);
      expect_packed(down[e], {of(Projection::expert_down, e), {}, false, inner, hidden, false},
                    adapter, dtype);
    }
    EXPECT_EQ(down[0].b, down[2].b) << "shared factors are packed once";
    EXPECT_NE(down[0].a, down[2].a);
    // Attention stays in the row layout.
    expect_rows(handle->find({0, Projection::q})->factors[0], adapter,
                adapter.find({0, Projection::q})->factors[0], dtype);
    EXPECT_TRUE(handle->find({2, Projection::expert_up})->factors.empty());
    EXPECT_TRUE(handle->seam(1, 0).empty());
  }
}

bool same(const kernels::FactorEntry& a, const kernels::FactorEntry& b) {
  return a.a == b.a && a.b == b.b && a.rank == b.rank && a.split == b.split &&
         std::ranges::equal(a.scale, b.scale);
}

TEST(Pages, DirectoryNamesEveryFactor) {
  const Adapter adapter = make_layers(3);
  for (const Layout layout : {Layout::rows, Layout::packed}) {
    const auto pool = Pool::create(device(), options_of(DType::bf16, layout)).value();
    const Handle handle = pool->load("a", adapter).value();
    const kernels::AdapterTerm& directory = handle->directory();
    EXPECT_EQ(directory.site_layers, 2);
    EXPECT_EQ(directory.expert_layers, 3);
    EXPECT_EQ(directory.experts, experts);
    const auto site = [&](std::int32_t layer, Projection projection) -> const kernels::SiteEntry& {
      return directory.sites[static_cast<std::size_t>(layer + 1) * projection_count +
                             static_cast<std::size_t>(projection)];
    };
    const SiteView* const q = handle->find({0, Projection::q});
    EXPECT_EQ(site(0, Projection::q).factor.a, q->factors[0].a);
    EXPECT_EQ(site(0, Projection::q).factor.rank, 17);
    EXPECT_EQ(site(0, Projection::q).factor.split, 24);
    EXPECT_EQ(site(0, Projection::q).lora_bias, q->lora_bias);
    EXPECT_EQ(site(-1, Projection::lm_head).replaced,
              handle->find({-1, Projection::lm_head})->replaced);
    EXPECT_EQ(site(0, Projection::k).factor.rank, 0);
    const int kinds = layout == Layout::rows ? 3 : 2;
    EXPECT_EQ(directory.scale, 1.0F);
    for (int layer = 0; layer < 3; ++layer) {
      for (int kind = 0; kind < kinds; ++kind) {
        for (int e = 0; e < experts; ++e) {
          const kernels::FactorEntry& entry =
              directory.expert_factors[(layer * kinds + kind) * experts + e];
          if (layer < 2) {
            EXPECT_EQ(entry.rank, 0);
          } else if (layout == Layout::packed) {
            EXPECT_TRUE(same(entry, handle->seam(2, kind)[static_cast<std::size_t>(e)]));
          } else {
            constexpr std::array projections{Projection::expert_gate, Projection::expert_up,
                                             Projection::expert_down};
            const SiteView* const view =
                handle->find({2, projections[static_cast<std::size_t>(kind)]});
            EXPECT_TRUE(same(entry, view->factors[static_cast<std::size_t>(e)]));
          }
        }
      }
    }
  }
}

// Compares ranks and scales; addresses differ.
bool same_factors(const Resident& a, const Resident& b) {
  const auto same_factor = [](const kernels::FactorEntry& x, const kernels::FactorEntry& y) {
    return x.rank == y.rank && x.split == y.split && std::ranges::equal(x.scale, y.scale);
  };
  return std::ranges::equal(a.sites(), b.sites(), [&](const SiteView& x, const SiteView& y) {
    return x.site == y.site && std::ranges::equal(x.factors, y.factors, same_factor);
  });
}

// The same bytes from the adapter, from a pool in pageable memory, and from one in pinned memory.
TEST(Pages, AreTheSameInEveryArena) {
  const Adapter adapter = make_layers(4);
  tensor::test::ScriptedDevice script(5);
  for (const auto& [dtype, layout] :
       {std::pair(DType::f32, Layout::rows), std::pair(DType::bf16, Layout::packed),
        std::pair(DType::f8_e4m3, Layout::rows), std::pair(DType::f8_e4m3, Layout::packed)}) {
    Pool::Options options = options_of(dtype, layout);
    options.staging = {.piece_bytes = PageWriter::max_bytes, .pieces = 2};
    Pool::Options without = options;
    without.directory = false;
    const Placement placement = place_blobs(adapter, options.format(), options.page_bytes);
    const auto host = Pool::create(device(), without).value();
    const auto pinned = Pool::create(script.pinned_memory(), without).value();
    const auto gpu = Pool::create(script, options).value();
    // Makes the pages of this pool different from those of the next.
    const Handle before = gpu->load("before", make_layers(99)).value();
    const Handle in_host = host->load("a", adapter).value();
    const Handle in_pinned = pinned->load("a", adapter).value();
    const std::array<Handle, 3> copies{gpu->load("built", adapter).value(),
                                       gpu->load("host", in_host).value(),
                                       gpu->load("pinned", in_pinned).value()};
    for (const Handle& copy : copies) {
      EXPECT_EQ(copy->version(), adapter.version);
      ASSERT_TRUE(same_factors(*copy, *in_host));
      for (const Placement::Blob& blob : placement.blobs) {
        const auto bytes = [&](const Handle& handle) {
          return handle->run(blob.run) + blob.offset;
        };
        ASSERT_EQ(std::memcmp(bytes(copy), bytes(in_host), blob.bytes), 0);
      }
      const kernels::AdapterTerm& directory = copy->directory();
      EXPECT_EQ(directory.sites[projection_count].factor.a,
                copy->find({0, Projection::q})->factors[0].a);
    }
    EXPECT_EQ(in_host->directory().sites, nullptr);
  }
}

// The same bytes from numbers as a file has them.
TEST(Pages, AreTheSameFromWhatAFileStores) {
  const Adapter adapter = make_layers(8);
  tensor::test::ScriptedDevice script(5);
  for (const auto& [dtype, layout] :
       {std::pair(DType::f32, Layout::rows), std::pair(DType::bf16, Layout::rows),
        std::pair(DType::bf16, Layout::packed), std::pair(DType::f8_e4m3, Layout::rows),
        std::pair(DType::f8_e4m3, Layout::packed)}) {
    Pool::Options options = options_of(dtype, layout);
    options.staging = {.piece_bytes = PageWriter::max_bytes, .pieces = 2};
    const Placement placement = place_blobs(adapter, options.format(), options.page_bytes);
    for (const DType stored_dtype : {DType::f32, DType::f16, DType::bf16}) {
      const test::StoredAdapter stored = test::stored_as(stored_dtype, adapter);
      const auto host = Pool::create(device(), options).value();
      const auto gpu = Pool::create(script, options).value();
      const Handle plain = host->load("plain", adapter).value();
      for (const Handle& other : {host->load("stored", stored.adapter).value(),
                                  gpu->load("stored", stored.adapter).value()}) {
        for (const Placement::Blob& blob : placement.blobs) {
          const auto bytes = [&](const Handle& handle) {
            return handle->run(blob.run) + blob.offset;
          };
          ASSERT_EQ(std::memcmp(bytes(other), bytes(plain), blob.bytes), 0);
        }
      }
    }
  }
}

TEST(Pages, CountsTheDirectory) {
  const Adapter adapter = make_layers(6);
  Pool::Options options = options_of(DType::bf16, Layout::packed);
  const std::uint64_t with = Pool::pages_of(adapter, options);
  const auto pool = Pool::create(device(), options).value();
  const Handle handle = pool->load("a", adapter).value();
  EXPECT_EQ(pool->usage().pages - pool->usage().free_pages, with);
  options.directory = false;
  EXPECT_EQ(Pool::pages_of(adapter, options) + 1, with);
}

}  // namespace
}  // namespace motley::lora
