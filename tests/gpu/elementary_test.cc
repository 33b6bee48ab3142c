#include "kernels/elementary.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "gpu/twin.h"

// Each entry of the GPU's table compared with the CPU's, with rows that can and that cannot be read
// in vec4s.
namespace motley::gpu_tests {
namespace {

using kernels::ElementaryTable;
using kernels::cpu::Numbers;

constexpr std::array types = {DType::f32, DType::bf16};

struct Size {
  std::int64_t width;
  std::int64_t gap;
};
constexpr std::array sizes = {Size{1, 2},   Size{7, 3},    Size{64, 0},   Size{64, 3},
                              Size{130, 0}, Size{2048, 8}, Size{3001, 1}, Size{9000, 0}};

TEST(DeviceElementary, EveryEntryIsFilled) {
  using Entry = void (*)();
  static_assert(sizeof(ElementaryTable) % sizeof(Entry) == 0);
  std::array<Entry, sizeof(ElementaryTable) / sizeof(Entry)> entries{};
  std::memcpy(static_cast<void*>(entries.data()), &device_table(), sizeof entries);
  for (std::size_t i = 0; i < entries.size(); ++i) EXPECT_NE(entries[i], nullptr) << "entry " << i;
}

TEST(DeviceElementary, AddGivesTheCpusBits) {
  Numbers numbers(1);
  for (const DType a_type : types) {
    for (const DType b_type : types) {
      for (const DType out_type : types) {
        for (const auto [width, gap] : sizes) {
          TwinRows a(numbers, a_type, 5, width, gap);
          TwinRows b(numbers, b_type, 5, width, gap);
          Twin<float> bias(numbers.floats(width, -1, 1));
          for (const bool has_bias : {false, true}) {
            TwinRows out(out_type, 5, width, gap);
            call_both(&ElementaryTable::add, [&](auto at) {
              return kernels::Add{.rows = 5,
                                  .width = width,
                                  .a = at(a),
                                  .a_type = a_type,
                                  .a_stride = a.stride(),
                                  .b = at(b),
                                  .b_type = b_type,
                                  .b_stride = b.stride(),
                                  .b_bias = has_bias ? at(bias) : nullptr,
                                  .out = at(out),
                                  .out_type = out_type,
                                  .out_stride = out.stride()};
            });
            out.expect_same();
          }
        }
      }
    }
  }
}

TEST(DeviceElementary, AddScaledGivesTheCpusBits) {
  Numbers numbers(2);
  for (const DType type : types) {
    for (const bool sigmoid : {false, true}) {
      for (const auto [width, gap] : sizes) {
        TwinRows x(numbers, type, 5, width, gap);
        TwinRows y(numbers, DType::f32, 5, width, gap);
        Twin<float> scale(numbers.floats(10, -3, 3));
        call_both(&ElementaryTable::add_scaled, [&](auto at) {
          return kernels::AddScaled{.rows = 5,
                                    .width = width,
                                    .x = at(x),
                                    .x_type = type,
                                    .x_stride = x.stride(),
                                    .scale = at(scale),
                                    .scale_stride = 2,
                                    .sigmoid = sigmoid,
                                    .y = reinterpret_cast<float*>(at(y)),
                                    .y_stride = y.stride()};
        });
        y.expect_same();
      }
    }
  }
}

TEST(DeviceElementary, RoundToGivesTheCpusBits) {
  Numbers numbers(3);
  for (const DType x_type : types) {
    for (const DType out_type : types) {
      for (const float limit : {0.0F, 1.25F}) {
        for (const auto [width, gap] : sizes) {
          TwinRows x(numbers, x_type, 5, width, gap);
          TwinRows out(out_type, 5, width, gap);
          Twin<float> bias(numbers.floats(width, -1, 1));
          call_both(&ElementaryTable::round_to, [&](auto at) {
            return kernels::RoundTo{.rows = 5,
                                    .width = width,
                                    .x = at(x),
                                    .x_type = x_type,
                                    .x_stride = x.stride(),
                                    .factor = 2.5F,
                                    .bias = limit > 0 ? at(bias) : nullptr,
                                    .limit = limit,
                                    .out = at(out),
                                    .out_type = out_type,
                                    .out_stride = out.stride()};
          });
          out.expect_same();
        }
      }
    }
  }
}

TEST(DeviceElementary, ActivationsGiveTheCpusBits) {
  Numbers numbers(4);
  for (const DType type : types) {
    for (const DType out_type : types) {
      for (const auto activation :
           {kernels::Activation::silu, kernels::Activation::clamped_swiglu}) {
        for (const auto [width, gap] : sizes) {
          TwinRows gate(numbers, type, 5, width, gap, {-100, 100});
          TwinRows up(numbers, type, 5, width, gap, {-12, 12});
          TwinRows out(out_type, 5, width, gap);
          call_both(&ElementaryTable::activate_and_multiply, [&](auto at) {
            return kernels::ActivateAndMultiply{.rows = 5,
                                                .width = width,
                                                .activation = activation,
                                                .gate = at(gate),
                                                .up = at(up),
                                                .type = type,
                                                .gate_stride = gate.stride(),
                                                .up_stride = up.stride(),
                                                .out = at(out),
                                                .out_type = out_type,
                                                .out_stride = out.stride()};
          });
          out.expect_same();
        }
      }
    }
  }
}

TEST(DeviceElementary, CombineGivesTheCpusBits) {
  Numbers numbers(5);
  for (const bool accumulate : {false, true}) {
    for (const auto [width, gap] : sizes) {
      TwinRows x(numbers, DType::f32, 5, width, gap);
      TwinRows out(numbers, DType::f32, 3, width, gap);
      Twin<std::int32_t> places(std::vector<std::int32_t>{4, 0, -1, 2, 2, 5, 1, 3, 0});
      Twin<float> weights(numbers.floats(9, 0, 1));
      call_both(&ElementaryTable::combine, [&](auto at) {
        return kernels::Combine{.rows = 3,
                                .slots = 3,
                                .width = width,
                                .x = reinterpret_cast<const float*>(at(x)),
                                .x_stride = x.stride(),
                                .x_rows = 5,
                                .places = at(places),
                                .weights = at(weights),
                                .out = reinterpret_cast<float*>(at(out)),
                                .out_stride = out.stride(),
                                .accumulate = accumulate};
      });
      out.expect_same();
    }
  }
}

TEST(DeviceElementary, EmbedGathersRowsAtAnyByte) {
  Numbers numbers(6);
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    for (const std::int64_t offset : {0, 1}) {
      for (const auto [width, gap] : sizes) {
        std::vector<std::byte> bytes(static_cast<std::size_t>(3 * width * 4 + offset));
        // Small codes: no format has a NaN among them.
        for (std::byte& byte : bytes) byte = static_cast<std::byte>(numbers.below(96));
        Twin<std::byte> table(std::move(bytes));
        Twin<std::int32_t> ids(std::vector<std::int32_t>{2, 0, 2, 3, -1});
        TwinRows out(DType::f32, 5, width, gap);
        call_both(&ElementaryTable::embed, [&](auto at) {
          return kernels::Embed{.rows = 5,
                                .width = width,
                                .table = at(table) + offset,
                                .table_type = type,
                                .table_rows = 3,
                                .ids = at(ids),
                                .out = reinterpret_cast<float*>(at(out)),
                                .out_stride = out.stride()};
        });
        out.expect_same();
      }
    }
  }
}

// Sums are in another order than the CPU's, whose sixteen lanes round once for each number: so its
// sum is off by at most width / 16 half steps of float32, the factor by half of that, and a few
// roundings come behind. Out's own type then rounds once or, before the weight, twice.
TEST(DeviceElementary, RmsNormAgreesWithTheCpu) {
  Numbers numbers(7);
  for (const DType x_type : types) {
    for (const DType out_type : types) {
      for (const bool weight_in_f32 : {false, true}) {
        for (const auto [width, gap] : sizes) {
          constexpr std::int64_t rows = 5;
          constexpr std::int64_t parts = 3;
          TwinRows x(numbers, x_type, rows * parts, width, gap);
          TwinRows out(out_type, rows * parts, width, gap);
          Twin<float> weight(numbers.floats(width, 0.5, 1.5));
          call_both(&ElementaryTable::rms_norm, [&](auto at) {
            return kernels::RmsNorm{.size = {rows, parts, width},
                                    .x = at(x),
                                    .x_type = x_type,
                                    .x_stride = parts * x.stride(),
                                    .x_part_stride = x.stride(),
                                    .weight = at(weight),
                                    .eps = 1e-5F,
                                    .weight_in_f32 = weight_in_f32,
                                    .out = at(out),
                                    .out_type = out_type,
                                    .out_stride = parts * out.stride(),
                                    .out_part_stride = out.stride()};
          });
          const std::vector<std::byte> read = out.read_device();
          const double sums = (static_cast<double>(width) / 32 + 8) * 0x1p-24;
          const double rounds = weight_in_f32 ? 0x1p-7 : 0x1p-6;
          const double steps = out_type == DType::bf16 ? rounds : sums;
          for (std::int64_t row = 0; row < rows * parts; ++row) {
            for (std::int64_t i = 0; i < width; ++i)
              ASSERT_NEAR(out.at(read.data(), row, i), out.at(row, i),
                          std::abs(out.at(row, i)) * steps)
                  << "width " << width;
          }
          out.expect_gaps_alone(read);
        }
      }
    }
  }
}

TEST(DeviceElementary, RmsNormOfARowIsItsOwn) {
  Numbers numbers(8);
  for (const auto [width, gap] : sizes) {
    TwinRows x(numbers, DType::bf16, 9, width, gap);
    TwinRows together(DType::bf16, 9, width, gap);
    TwinRows alone(DType::bf16, 9, width, gap);
    Twin<float> weight(numbers.floats(width, 0.5, 1.5));
    kernels::RmsNorm call{.size = {9, 1, width},
                          .x = x.device(),
                          .x_type = DType::bf16,
                          .x_stride = x.stride(),
                          .weight = weight.device(),
                          .out = together.device(),
                          .out_type = DType::bf16,
                          .out_stride = together.stride()};
    device_table().rms_norm(call, default_stream());
    call.size.rows = 1;
    for (std::int64_t row = 0; row < 9; ++row) {
      call.x = x.device() + 2 * row * x.stride();
      call.out = alone.device() + 2 * row * alone.stride();
      device_table().rms_norm(call, default_stream());
    }
    finish();
    EXPECT_EQ(together.read_device(), alone.read_device()) << "width " << width;
  }
}

TEST(DeviceElementary, AddAndNormIsOneAfterTheOther) {
  Numbers numbers(12);
  for (const DType type : types) {
    for (const auto [width, gap] : sizes) {
      const TwinRows a(numbers, DType::f32, 5, width, gap);
      const TwinRows b(numbers, type, 5, width, gap);
      const TwinRows sum(type, 5, width, gap);
      const TwinRows sum_apart(type, 5, width, gap);
      const TwinRows out(DType::bf16, 5, width, gap);
      const TwinRows out_apart(DType::bf16, 5, width, gap);
      const Twin<float> weight(numbers.floats(width, 0.5, 1.5));
      kernels::AddAndNorm both{.add = {.rows = 5,
                                       .width = width,
                                       .a = a.device(),
                                       .a_stride = a.stride(),
                                       .b = b.device(),
                                       .b_type = type,
                                       .b_stride = b.stride(),
                                       .out = sum.device(),
                                       .out_type = type,
                                       .out_stride = sum.stride()},
                               .norm = {.size = {5, 1, width},
                                        .x = sum.device(),
                                        .x_type = type,
                                        .x_stride = sum.stride(),
                                        .weight = weight.device(),
                                        .out = out.device(),
                                        .out_type = DType::bf16,
                                        .out_stride = out.stride()}};
      device_table().add_and_norm(both, default_stream());
      both.add.out = sum_apart.device();
      both.norm.x = sum_apart.device();
      both.norm.out = out_apart.device();
      device_table().add(both.add, default_stream());
      device_table().rms_norm(both.norm, default_stream());
      finish();
      EXPECT_TRUE(sum.read_device() == sum_apart.read_device()) << "width " << width;
      EXPECT_TRUE(out.read_device() == out_apart.read_device()) << "width " << width;
    }
  }
}

void add_bias(const TwinRows& x, DType type, const Twin<float>& bias, const TwinRows& out) {
  device_table().round_to({.rows = x.rows(),
                           .width = x.width(),
                           .x = x.device(),
                           .x_type = type,
                           .x_stride = x.stride(),
                           .bias = bias.device(),
                           .out = out.device(),
                           .out_type = type,
                           .out_stride = out.stride()},
                          default_stream());
}

TEST(DeviceElementary, AddAndNormAddsTheBiasFirst) {
  Numbers numbers(15);
  for (const DType type : types) {
    for (const auto [width, gap] : sizes) {
      // With few rows the kernel's instructions are loaded ahead.
      for (const std::int64_t rows : {1, 5, 20}) {
        const TwinRows a(numbers, DType::f32, rows, width, gap);
        const TwinRows b(numbers, type, rows, width, gap);
        const TwinRows biased(type, rows, width, gap);
        const TwinRows sum(DType::f32, rows, width, gap);
        const TwinRows sum_apart(DType::f32, rows, width, gap);
        const TwinRows out(DType::bf16, rows, width, gap);
        const TwinRows out_apart(DType::bf16, rows, width, gap);
        const Twin<float> bias(numbers.floats(width, -1, 1));
        const Twin<float> weight(numbers.floats(width, 0.5, 1.5));
        kernels::AddAndNorm both{.add = {.rows = rows,
                                         .width = width,
                                         .a = a.device(),
                                         .a_stride = a.stride(),
                                         .b = b.device(),
                                         .b_type = type,
                                         .b_stride = b.stride(),
                                         .b_bias = bias.device(),
                                         .out = sum.device(),
                                         .out_stride = sum.stride()},
                                 .norm = {.size = {rows, 1, width},
                                          .x = sum.device(),
                                          .x_stride = sum.stride(),
                                          .weight = weight.device(),
                                          .out = out.device(),
                                          .out_type = DType::bf16,
                                          .out_stride = out.stride()}};
        device_table().add_and_norm(both, default_stream());
        add_bias(b, type, bias, biased);
        both.add.b = biased.device();
        both.add.b_bias = nullptr;
        both.add.out = sum_apart.device();
        both.norm.x = sum_apart.device();
        both.norm.out = out_apart.device();
        device_table().add_and_norm(both, default_stream());
        finish();
        EXPECT_TRUE(sum.read_device() == sum_apart.read_device()) << rows << " rows of " << width;
        EXPECT_TRUE(out.read_device() == out_apart.read_device()) << rows << " rows of " << width;
      }
    }
  }
}

TEST(DeviceElementary, HeadsAreRotatedAsTheCpuDoes) {
  Numbers numbers(9);
  for (const std::int64_t pairs : {1, 5, 16, 35, 64}) {
    constexpr std::int64_t rows = 4;
    Twin<std::int32_t> positions(std::vector<std::int32_t>{0, 3, 70001, (1 << 20) - 1});
    Twin<float> frequencies(numbers.floats(pairs, 0, 1));
    Twin<float> cos_sin(static_cast<std::size_t>(rows * pairs * 2));
    call_both(&ElementaryTable::rope_table, [&](auto at) {
      return kernels::RopeTable{.rows = rows,
                                .pairs = pairs,
                                .positions = at(positions),
                                .inverse_frequencies = at(frequencies),
                                .factor = 1.25F,
                                .cos_sin = at(cos_sin)};
    });
    std::vector<float> read(cos_sin.size());
    ASSERT_EQ(cudaMemcpy(read.data(), cos_sin.device(), 4 * read.size(), cudaMemcpyDefault),
              cudaSuccess);
    // Both are within one unit of the last place of a number below 1.25.
    for (std::size_t i = 0; i < read.size(); ++i)
      ASSERT_NEAR(read[i], cos_sin.host()[i], 0x1p-23) << "pairs " << pairs << ", number " << i;
    ASSERT_EQ(cudaMemcpy(cos_sin.device(), cos_sin.host(), 4 * read.size(), cudaMemcpyDefault),
              cudaSuccess);
    for (const DType type : types) {
      for (const bool interleaved : {false, true}) {
        for (const std::int64_t gap : {0, 3, 8}) {
          constexpr std::int64_t heads = 3;
          TwinRows x(numbers, type, rows * heads, pairs * 2 + 4, gap);
          kernels::Heads all{};
          call_both(&ElementaryTable::prepare_heads, [&](auto at) {
            all = {.heads = heads,
                   .width = 2 * pairs,
                   .x = at(x),
                   .x_type = type,
                   .x_stride = heads * x.stride(),
                   .x_head_stride = x.stride(),
                   .cos_sin = at(cos_sin),
                   .pairs = pairs,
                   .interleaved = interleaved,
                   .out = at(x),
                   .out_type = type,
                   .out_stride = heads * x.stride(),
                   .out_head_stride = x.stride()};
            return kernels::PrepareHeads{.rows = rows, .all = &all, .count = 1};
          });
          x.expect_same();
        }
      }
    }
  }
}

// Three rows of two sequences, and one that has none.
struct PreparedWorld {
  static constexpr std::int64_t rows = 4;
  static constexpr std::int64_t page_tokens = 2;
  Twin<std::int32_t> seq_begin{std::vector<std::int32_t>{0, 2, 2, 3}};
  Twin<std::int32_t> positions{std::vector<std::int32_t>{2, 3, 0, 7}};
  Twin<std::int32_t> pages{std::vector<std::int32_t>{0, 3, -1, -1, 1, -1}};
};

struct PreparedShape {
  std::int64_t heads;
  std::int64_t width;
  std::int64_t pairs;
  std::int64_t gap;
};

TEST(DeviceElementary, HeadsAreRotatedStoredAndWrittenAsOnTheCpu) {
  Numbers numbers(13);
  PreparedWorld world;
  constexpr std::int64_t rows = PreparedWorld::rows;
  for (const auto [heads, width, pairs, gap] : {PreparedShape{5, 128, 64, 0},
                                                {3, 128, 24, 4},
                                                {5, 128, 32, 0},
                                                {7, 64, 32, 0},
                                                {9, 64, 4, 0},
                                                {3, 256, 32, 0},
                                                {2, 256, 64, 4},
                                                {2, 256, 128, 0},
                                                {2, 70, 35, 3},
                                                {1, 576, 32, 0}}) {
    for (const DType type : types) {
      for (const DType page_type : types) {
        for (const bool interleaved : {false, true}) {
          TwinRows q(numbers, type, rows * heads, width, gap);
          TwinRows k(numbers, type, rows * 2, width, gap);
          TwinRows stored(page_type, 4 * PreparedWorld::page_tokens * 2, width, gap);
          TwinRows out(page_type, rows * heads, width, gap);
          Twin<float> cos_sin(numbers.floats(rows * 2 * pairs, -1, 1));
          const auto prepare = [&](auto at, const ElementaryTable& table) {
            const std::array heads_of = {
                kernels::Heads{.heads = heads,
                               .width = width,
                               .x = at(q),
                               .x_type = type,
                               .x_stride = heads * q.stride(),
                               .x_head_stride = q.stride(),
                               .cos_sin = at(cos_sin),
                               .pairs = pairs,
                               .interleaved = interleaved,
                               .out = at(out),
                               .out_type = page_type,
                               .out_stride = heads * out.stride(),
                               .out_head_stride = out.stride()},
                kernels::Heads{
                    .heads = 2,
                    .width = width,
                    .x = at(k),
                    .x_type = type,
                    .x_stride = 2 * k.stride(),
                    .x_head_stride = k.stride(),
                    .cos_sin = at(cos_sin),
                    .pairs = pairs,
                    .interleaved = interleaved,
                    .pages = {.data = at(stored),
                              .type = page_type,
                              .page_stride = PreparedWorld::page_tokens * 2 * stored.stride(),
                              .token_stride = 2 * stored.stride(),
                              .head_stride = stored.stride()}}};
            table.prepare_heads(
                {.rows = rows,
                 .all = heads_of.data(),
                 .count = 2,
                 .sequences = {.count = 3,
                               .seq_begin = at(world.seq_begin),
                               .positions = at(world.positions)},
                 .table = {.pages = at(world.pages), .stride = 2, .page_tokens = 2}},
                default_stream());
          };
          prepare(OnHost{}, kernels::cpu_table());
          prepare(OnDevice{}, device_table());
          finish();
          out.expect_same();
          stored.expect_same();
        }
      }
    }
  }
}

// Heads that lanes hold, in one round and in several; others; heads whose norm is a launch ahead.
TEST(DeviceElementary, HeadsGetTheirBiasAsRoundToAddsIt) {
  struct Shape {
    std::int64_t rows, heads, width, pairs;
    bool norms;
  };
  Numbers numbers(16);
  for (const auto [rows, heads, width, pairs, norms] : {Shape{1, 64, 64, 32, false},
                                                        {5, 8, 64, 32, true},
                                                        {1100, 64, 64, 32, false},
                                                        {3, 5, 128, 64, true},
                                                        {3300, 20, 128, 64, true},
                                                        {4, 3, 128, 24, true},
                                                        {3300, 20, 128, 32, true},
                                                        {5, 7, 256, 32, true},
                                                        {3700, 18, 256, 128, true},
                                                        {4, 2, 70, 35, false},
                                                        {4, 2, 512, 32, true}}) {
    for (const DType type : types) {
      const TwinRows x(numbers, type, rows, heads * width, 4);
      const TwinRows apart(type, rows, heads * width, 4);
      const TwinRows out(DType::bf16, rows, heads * width, 0);
      const TwinRows out_apart(DType::bf16, rows, heads * width, 0);
      const Twin<float> bias(numbers.floats(heads * width, -1, 1));
      const Twin<float> weight(numbers.floats(width, 0.5, 1.5));
      const Twin<float> cos_sin(numbers.floats(rows * 2 * pairs, -1, 1));
      const auto prepare = [&](const TwinRows& from, const float* added, const TwinRows& to) {
        const kernels::Heads all{.heads = heads,
                                 .width = width,
                                 .x = from.device(),
                                 .x_type = type,
                                 .x_stride = from.stride(),
                                 .x_head_stride = width,
                                 .bias = added,
                                 .norm_weight = norms ? weight.device() : nullptr,
                                 .cos_sin = cos_sin.device(),
                                 .pairs = pairs,
                                 .out = to.device(),
                                 .out_type = DType::bf16,
                                 .out_stride = to.stride(),
                                 .out_head_stride = width};
        device_table().prepare_heads({.rows = rows, .all = &all, .count = 1}, default_stream());
      };
      add_bias(x, type, bias, apart);
      prepare(apart, nullptr, out_apart);
      prepare(x, bias.device(), out);
      finish();
      EXPECT_TRUE(out.read_device() == out_apart.read_device())
          << rows << " rows of " << heads << " heads of " << width;
    }
  }
}

TEST(DeviceElementary, HeadsAreNormedAsRmsNormDoes) {
  Numbers numbers(14);
  for (const auto [width, gap] :
       {Size{64, 0}, Size{128, 4}, Size{130, 3}, Size{256, 0}, Size{512, 0}}) {
    for (const DType type : types) {
      constexpr std::int64_t heads = 3;
      const TwinRows x(numbers, type, 5 * heads, width, gap);
      const TwinRows apart(type, 5 * heads, width, gap);
      const Twin<float> weight(numbers.floats(width, 0.5, 1.5));
      device_table().rms_norm({.size = {5, heads, width},
                               .x = x.device(),
                               .x_type = type,
                               .x_stride = heads * x.stride(),
                               .x_part_stride = x.stride(),
                               .weight = weight.device(),
                               .out = apart.device(),
                               .out_type = type,
                               .out_stride = heads * x.stride(),
                               .out_part_stride = x.stride()},
                              default_stream());
      const kernels::Heads in_place{.heads = heads,
                                    .width = width,
                                    .x = x.device(),
                                    .x_type = type,
                                    .x_stride = heads * x.stride(),
                                    .x_head_stride = x.stride(),
                                    .norm_weight = weight.device(),
                                    .out = x.device(),
                                    .out_type = type,
                                    .out_stride = heads * x.stride(),
                                    .out_head_stride = x.stride()};
      device_table().prepare_heads({.rows = 5, .all = &in_place, .count = 1}, default_stream());
      finish();
      EXPECT_TRUE(x.read_device() == apart.read_device()) << "width " << width;
    }
  }
}

TEST(DeviceElementary, LogProbabilitiesAgreeWithTheCpu) {
  Numbers numbers(10);
  for (const std::int64_t width : {1, 15, 1024, 5003, 151936}) {
    TwinRows logits(numbers, DType::f32, 3, width, 5, {-30, 30});
    const auto last = static_cast<std::int32_t>(width - 1);
    Twin<std::int32_t> ids(std::vector<std::int32_t>{0, last, last / 2, 0, last / 3, last});
    Twin<float> out(6);
    Twin<std::int32_t> ranks(std::vector<std::int32_t>(6, -1));
    call_both(&ElementaryTable::log_probabilities, [&](auto at) {
      return kernels::LogProbabilities{.rows = 3,
                                       .width = width,
                                       .logits = reinterpret_cast<const float*>(at(logits)),
                                       .logits_stride = logits.stride(),
                                       .chosen = 2,
                                       .ids = at(ids),
                                       .out = at(out),
                                       .ranks = at(ranks)};
    });
    std::array<std::int32_t, 6> places{};
    ASSERT_EQ(cudaMemcpy(places.data(), ranks.device(), sizeof places, cudaMemcpyDefault),
              cudaSuccess);
    for (std::size_t i = 0; i < 6; ++i)
      ASSERT_EQ(places[i], ranks.host()[i]) << "width " << width << ", rank " << i;
    std::array<float, 6> read{};
    ASSERT_EQ(cudaMemcpy(read.data(), out.device(), sizeof read, cudaMemcpyDefault), cudaSuccess);
    // The same sum; its logarithm may differ in float64's last place and so round otherwise.
    for (std::size_t i = 0; i < 6; ++i)
      ASSERT_NEAR(read[i], out.host()[i], std::abs(out.host()[i]) * 0x1p-23F) << "width " << width;
  }
}

TEST(DeviceElementary, LogProbabilitiesOfWhatHasOverflowedAreNoNumbers) {
  Numbers numbers(12);
  constexpr std::int64_t width = 5003;
  TwinRows logits(numbers, DType::f32, 3, width, 3);
  auto* const values = reinterpret_cast<float*>(logits.host());
  values[width - 1] = kernels::cpu::poison;
  values[logits.stride()] = std::numeric_limits<float>::infinity();
  ASSERT_EQ(cudaMemcpy(logits.device(), logits.host(),
                       static_cast<std::size_t>(3 * 4 * logits.stride()), cudaMemcpyDefault),
            cudaSuccess);
  Twin<std::int32_t> ids(std::vector<std::int32_t>{0, 0, 0});
  Twin<float> out(3);
  call_both(&ElementaryTable::log_probabilities, [&](auto at) {
    return kernels::LogProbabilities{.rows = 3,
                                     .width = width,
                                     .logits = reinterpret_cast<const float*>(at(logits)),
                                     .logits_stride = logits.stride(),
                                     .chosen = 1,
                                     .ids = at(ids),
                                     .out = at(out)};
  });
  float read[3];
  ASSERT_EQ(cudaMemcpy(read, out.device(), sizeof read, cudaMemcpyDefault), cudaSuccess);
  for (const int row : {0, 1, 2}) {
    EXPECT_EQ(std::isnan(read[row]), row < 2) << "row " << row;
    EXPECT_EQ(std::isnan(out.host()[row]), row < 2) << "row " << row;
  }
}

TEST(DeviceElementary, TopKChoosesAsTheCpuDoes) {
  Numbers numbers(11);
  for (const std::int64_t width : {1, 200, 5000, 151936}) {
    TwinRows x(numbers, DType::f32, 4, width, 3);
    auto* const values = reinterpret_cast<float*>(x.host());
    // Row 0 has few distinct values, and what is hard to order; row 1 is all alike.
    for (std::int64_t i = 0; i < width; ++i) {
      values[i] = static_cast<float>(numbers.below(9)) - 4.0F;
      values[x.stride() + i] = 0.5F;
    }
    constexpr float infinity = std::numeric_limits<float>::infinity();
    const std::array hard = {kernels::cpu::poison, -infinity, infinity, -0.0F, 0.0F, -1e-42F};
    for (std::size_t i = 0; i < hard.size() && static_cast<std::int64_t>(i) * 7 < width; ++i)
      values[7 * i] = hard[i];
    ASSERT_EQ(cudaMemcpy(x.device(), x.host(), static_cast<std::size_t>(4 * 4 * x.stride()),
                         cudaMemcpyDefault),
              cudaSuccess);
    for (const std::int64_t k : {1, 20, 200, 1500}) {
      if (k > width) continue;
      Twin<std::int32_t> ids(static_cast<std::size_t>(4 * k));
      Twin<float> chosen(ids.size());
      call_both(&ElementaryTable::top_k, [&](auto at) {
        return kernels::TopK{.rows = 4,
                             .width = width,
                             .x = reinterpret_cast<const float*>(at(x)),
                             .x_stride = x.stride(),
                             .k = k,
                             .ids = at(ids),
                             .values = at(chosen)};
      });
      std::vector<std::int32_t> read_ids(ids.size());
      std::vector<float> read(ids.size());
      ASSERT_EQ(cudaMemcpy(read_ids.data(), ids.device(), 4 * ids.size(), cudaMemcpyDefault),
                cudaSuccess);
      ASSERT_EQ(cudaMemcpy(read.data(), chosen.device(), 4 * ids.size(), cudaMemcpyDefault),
                cudaSuccess);
      for (std::size_t i = 0; i < ids.size(); ++i) {
        ASSERT_EQ(read_ids[i], ids.host()[i]) << "width " << width << ", k " << k << ", at " << i;
        ASSERT_EQ(std::bit_cast<std::uint32_t>(read[i]),
                  std::bit_cast<std::uint32_t>(chosen.host()[i]));
      }
    }
  }
}

}  // namespace
}  // namespace motley::gpu_tests
