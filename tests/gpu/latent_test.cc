// The small kernels of latent attention.

#include <algorithm>
#include <array>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "gpu/twin.h"
#include "kernels/cpu/test_weights.h"

namespace motley::gpu_tests {
namespace {

using kernels::ElementaryTable;
using kernels::cpu::Numbers;

// Three rows of two sequences, and one that has none.
struct Sequences {
  static constexpr std::int64_t rows = 4;
  static constexpr std::int64_t page_tokens = 2;
  static constexpr std::int64_t pages = 4;
  Twin<std::int32_t> seq_begin{std::vector<std::int32_t>{0, 2, 2, 3}};
  Twin<std::int32_t> positions{std::vector<std::int32_t>{2, 3, 0, 7}};
  Twin<std::int32_t> table{std::vector<std::int32_t>{0, 3, -1, -1, 1, -1}};

  template <class At>
  kernels::Sequences all(const At& at) const {
    return {.count = 3, .seq_begin = at(seq_begin), .positions = at(positions), .rows = rows};
  }
  template <class At>
  kernels::BlockTable block_table(const At& at) const {
    return {.pages = at(table), .stride = 2, .page_tokens = page_tokens};
  }
};

kernels::Pages pages_of(const TwinRows& kept) {
  return {.data = kept.device(),
          .type = kept.type(),
          .page_stride = Sequences::page_tokens * kept.stride(),
          .token_stride = kept.stride(),
          .head_stride = kept.stride()};
}

struct Shape {
  std::int64_t heads, latent, pairs, before;  // `before` the rotated columns of a query
  std::int64_t gap;
};

struct LatentCase {
  Shape shape;
  DType page_type, out_type;
  bool interleaved;
  std::int64_t out_from;

  std::int64_t width() const { return shape.before + 2 * shape.pairs; }
};

// The rows of a case, and where they are stored.
struct LatentRows {
  static constexpr std::int64_t rows = Sequences::rows;
  static constexpr std::int64_t kept_rows = Sequences::pages * Sequences::page_tokens;
  Twin<float> cos_sin, weight;
  TwinRows kv, q;
  TwinRows kept, out;

  LatentRows(Numbers& numbers, const LatentCase& c)
      : cos_sin(numbers.floats(rows * 2 * c.shape.pairs, -1, 1)),
        weight(numbers.floats(c.shape.latent, 0.5, 1.5)),
        kv(numbers, DType::f32, rows, c.shape.latent + 2 * c.shape.pairs, c.shape.gap),
        q(numbers, DType::f32, rows * c.shape.heads, c.width(), c.shape.gap),
        kept(kept_of(c)),
        out(out_of(c)) {}

  static TwinRows kept_of(const LatentCase& c) {
    return {c.page_type, kept_rows, c.shape.latent + 2 * c.shape.pairs, c.shape.gap};
  }
  static TwinRows out_of(const LatentCase& c) {
    return {c.out_type, rows * c.shape.heads, c.width() - c.out_from, c.shape.gap};
  }
  float* keys() const { return reinterpret_cast<float*>(kv.device()); }
  float* queries() const { return reinterpret_cast<float*>(q.device()); }
};

void prepare_together(const Sequences& world, const LatentCase& c, const LatentRows& rows) {
  const OnDevice at;
  device_table().prepare_latent({.rows = LatentRows::rows,
                                 .kv = rows.keys(),
                                 .kv_stride = rows.kv.stride(),
                                 .latent = c.shape.latent,
                                 .norm_weight = rows.weight.device(),
                                 .cos_sin = rows.cos_sin.device(),
                                 .pairs = c.shape.pairs,
                                 .interleaved = c.interleaved,
                                 .q = rows.queries(),
                                 .heads = c.shape.heads,
                                 .width = c.width(),
                                 .q_stride = c.shape.heads * rows.q.stride(),
                                 .q_head_stride = rows.q.stride(),
                                 .out = rows.out.device(),
                                 .out_from = c.out_from,
                                 .out_type = c.out_type,
                                 .out_stride = c.shape.heads * rows.out.stride(),
                                 .out_head_stride = rows.out.stride(),
                                 .sequences = world.all(at),
                                 .table = world.block_table(at),
                                 .pages = pages_of(rows.kept)},
                                default_stream());
}

// Changes the keys and queries.
void prepare_apart(const Sequences& world, const LatentCase& c, const LatentRows& rows,
                   const TwinRows& kept, const TwinRows& out) {
  const OnDevice at;
  const ElementaryTable& table = device_table();
  const auto& [heads, latent, pairs, before, gap] = c.shape;
  const std::int64_t q_stride = rows.q.stride();
  table.rms_norm({.size = {LatentRows::rows, 1, latent},
                  .x = rows.keys(),
                  .x_stride = rows.kv.stride(),
                  .weight = rows.weight.device(),
                  .out = rows.keys(),
                  .out_stride = rows.kv.stride()},
                 default_stream());
  kernels::Heads rotated{.heads = 1,
                         .width = 2 * pairs,
                         .x = rows.keys() + latent,
                         .x_stride = rows.kv.stride(),
                         .cos_sin = rows.cos_sin.device(),
                         .pairs = pairs,
                         .interleaved = c.interleaved,
                         .out = rows.keys() + latent,
                         .out_stride = rows.kv.stride()};
  table.prepare_heads({.rows = LatentRows::rows, .all = &rotated, .count = 1}, default_stream());
  const kernels::Heads stored{.heads = 1,
                              .width = latent + 2 * pairs,
                              .x = rows.keys(),
                              .x_stride = rows.kv.stride(),
                              .pages = pages_of(kept)};
  table.prepare_heads({.rows = LatentRows::rows,
                       .all = &stored,
                       .count = 1,
                       .sequences = world.all(at),
                       .table = world.block_table(at)},
                      default_stream());
  rotated.heads = heads;
  rotated.x = rotated.out = rows.queries() + before;
  rotated.x_stride = rotated.out_stride = heads * q_stride;
  rotated.x_head_stride = rotated.out_head_stride = q_stride;
  table.prepare_heads({.rows = LatentRows::rows, .all = &rotated, .count = 1}, default_stream());
  table.round_to({.rows = LatentRows::rows * heads,
                  .width = c.width() - c.out_from,
                  .x = rows.queries() + c.out_from,
                  .x_stride = q_stride,
                  .out = out.device(),
                  .out_type = c.out_type,
                  .out_stride = out.stride()},
                 default_stream());
}

// Against the kernels that do it one after the other: every bit, and nothing else is written.
TEST(DeviceLatent, RowsArePreparedAsOneAfterTheOther) {
  Numbers numbers(41);
  const Sequences world;
  for (const Shape& shape : {Shape{16, 512, 32, 128, 0}, Shape{3, 20, 4, 8, 4},
                             Shape{2, 13, 3, 5, 1}, Shape{2100, 20, 4, 8, 0}}) {
    for (const auto& [page_type, out_type] : {std::pair{DType::bf16, DType::bf16},
                                              {DType::bf16, DType::f32},
                                              {DType::f32, DType::f32}}) {
      for (const bool interleaved : {false, true}) {
        for (const std::int64_t out_from : {std::int64_t{0}, shape.before}) {
          const LatentCase c{shape, page_type, out_type, interleaved, out_from};
          const LatentRows rows(numbers, c);
          const TwinRows kept = LatentRows::kept_of(c);
          const TwinRows out = LatentRows::out_of(c);
          prepare_together(world, c, rows);
          prepare_apart(world, c, rows, kept, out);
          finish();
          EXPECT_TRUE(rows.kept.read_device() == kept.read_device()) << "latent " << shape.latent;
          EXPECT_TRUE(rows.out.read_device() == out.read_device()) << "width " << c.width();
        }
      }
    }
  }
}

TEST(DeviceLatent, PositionsAreGatheredAsTheCpuDoes) {
  Numbers numbers(42);
  const Sequences world;
  // Of the sequences' four and one positions; the second has none.
  const Twin<std::int32_t> begin(std::vector<std::int32_t>{0, 4, 4, 5});
  const Twin<std::int32_t> labels(std::vector<std::int32_t>{7, 7, -1, 3});
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const auto& [width, gap] : {std::pair<std::int64_t, std::int64_t>{576, 8}, {13, 3}}) {
      TwinRows kept(numbers, type, Sequences::pages * Sequences::page_tokens, width, gap);
      TwinRows out(type, 5, width, gap);
      Twin<std::int32_t> out_labels(5);
      call_both(&ElementaryTable::gather_paged, [&](auto at) {
        kernels::Pages pages = pages_of(kept);
        pages.data = at(kept);
        return kernels::GatherPaged{.rows = 5,
                                    .begin = at(begin),
                                    .sequences = world.all(at),
                                    .table = world.block_table(at),
                                    .pages = pages,
                                    .width = width,
                                    .out = at(out),
                                    .out_stride = out.stride(),
                                    .labels = at(labels),
                                    .out_labels = at(out_labels)};
      });
      out.expect_same();
      std::array<std::int32_t, 5> read{};
      ASSERT_EQ(cudaMemcpy(read.data(), out_labels.device(), sizeof read, cudaMemcpyDefault),
                cudaSuccess);
      EXPECT_TRUE(std::ranges::equal(read, std::span(out_labels.host(), 5)));
    }
  }
}

// Rows of float32 lose 2^-17 of themselves, weights nothing; a sum of n is off by n 2^-24 of its
// terms. A row's bits are its own, and rounded results are the others, rounded.
TEST(DeviceLatent, HeadsOfFewRowsAreMultipliedInOneOrder) {
  Numbers numbers(43);
  constexpr std::int64_t heads = 3;
  constexpr std::int64_t rows_per_head = 256;
  constexpr std::int64_t latent = 512;
  constexpr std::int64_t most = 150;
  const kernels::cpu::TestWeight weight = kernels::cpu::make_weight(
      numbers, kernels::WeightKind::bf16, heads * rows_per_head, latent, 1, 0);
  const DeviceArray<std::byte> bytes(std::span<const std::byte>(weight.bytes).subspan(1));
  kernels::WeightView view = weight.view;
  view.data = bytes.data();
  for (const bool transposed : {false, true}) {
    const std::int64_t in = transposed ? 128 : latent;
    const std::int64_t width = transposed ? latent : 128;
    const std::int64_t first = transposed ? 0 : 128;
    const TwinRows x(numbers, DType::f32, most * heads, in, 4);
    std::vector<std::byte> all;
    for (const std::int64_t rows : {most, std::int64_t{17}, std::int64_t{8}, std::int64_t{1}}) {
      const TwinRows y(DType::f32, most * heads, width, 2);
      const TwinRows rounded(DType::bf16, most * heads, width, 2);
      kernels::LinearPerHead call{.product = {.rows = rows,
                                              .heads = heads,
                                              .x = x.device(),
                                              .x_stride = heads * x.stride(),
                                              .x_head_stride = x.stride(),
                                              .w = view,
                                              .w_rows_per_head = rows_per_head,
                                              .w_first = first,
                                              .out = 128,
                                              .y = reinterpret_cast<float*>(y.device()),
                                              .y_stride = heads * y.stride(),
                                              .y_head_stride = y.stride(),
                                              .exact = false},
                                  .transposed = transposed,
                                  .narrow = view};
      device_table().linear_per_head(call, default_stream());
      call.rounded = rounded.device();
      call.rounded_stride = heads * rounded.stride();
      call.rounded_head_stride = rounded.stride();
      device_table().linear_per_head(call, default_stream());
      finish();
      const std::vector<std::byte> got = y.read_device();
      const std::vector<std::byte> narrow = rounded.read_device();
      y.expect_gaps_alone(got);
      rounded.expect_gaps_alone(narrow);
      if (rows == most) all = got;
      const auto own = static_cast<std::size_t>(4 * rows * heads * y.stride());
      EXPECT_TRUE(
          std::equal(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(own), all.begin()))
          << rows << " rows";
      for (std::int64_t row = 0; row < rows * heads; ++row) {
        for (std::int64_t o = 0; o < width; ++o) {
          const double value = y.at(got.data(), row, o);
          ASSERT_EQ(rounded.at(narrow.data(), row, o),
                    double{bf16::from(static_cast<float>(value)).to_float()});
          if (rows != 17) continue;
          double sum = 0;
          double magnitude = 0;
          for (std::int64_t k = 0; k < in; ++k) {
            const std::int64_t w_row = row % heads * rows_per_head + first;
            const double product =
                x.at(row, k) * (transposed ? weight.at(w_row + k, o) : weight.at(w_row + o, k));
            sum += product;
            magnitude += std::abs(product);
          }
          ASSERT_NEAR(value, sum, (static_cast<double>(in) * 0x1p-24 + 0x1p-17) * magnitude + 1e-30)
              << "row " << row << ", output " << o;
        }
      }
    }
  }
}

}  // namespace
}  // namespace motley::gpu_tests
