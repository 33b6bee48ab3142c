// Keys and values as codes of 8 bits: stored and gathered as the CPU does, and attended to as pages
// of bf16 with the same numbers are.

#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "gpu/attention_world.h"
#include "gpu/twin.h"

namespace motley::gpu_tests {
namespace {

using kernels::ElementaryTable;
using kernels::cpu::Numbers;

// Three rows of two sequences, and one that has none.
struct Steps {
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

struct Layout {
  std::int64_t heads = 0;
  std::int64_t width = 0;  // the tail's included
  std::int64_t tail = 0;
  float scale = 0;

  std::int64_t columns() const { return width - tail; }
  std::int64_t codes() const { return Steps::page_tokens * heads * columns(); }
  std::int64_t bytes() const {
    const std::int64_t end = codes() + Steps::page_tokens * heads * (2 * tail + 1);
    return (end + 15) / 16 * 16;
  }
  // A tail stands at an even place.
  std::int64_t tail_begin() const { return (codes() + 7) / 8 * 8; }
  std::int64_t page_bytes() const { return bytes() + 16; }

  kernels::Pages pages(std::byte* memory) const {
    return {.data = memory,
            .type = DType::f8_e4m3,
            .page_stride = page_bytes(),
            .token_stride = heads * columns(),
            .head_stride = columns(),
            .exponents =
                reinterpret_cast<std::uint8_t*>(memory) + page_bytes() - Steps::page_tokens * heads,
            .fixed_scale = scale};
  }
  kernels::PagedTail tails(std::byte* memory) const {
    if (tail == 0) return {};
    return {.pages = {.data = memory + tail_begin(),
                      .type = DType::bf16,
                      .page_stride = page_bytes() / 2,
                      .token_stride = tail,
                      .head_stride = tail},
            .width = tail};
  }
  Twin<std::byte> memory() const {
    return Twin<std::byte>(static_cast<std::size_t>(Steps::pages * page_bytes()));
  }
};

std::vector<std::byte> read(const Twin<std::byte>& memory) {
  std::vector<std::byte> bytes(memory.size());
  EXPECT_EQ(cudaMemcpy(bytes.data(), memory.device(), bytes.size(), cudaMemcpyDefault),
            cudaSuccess);
  return bytes;
}
bool same(Twin<std::byte>& memory) {
  const std::vector<std::byte> bytes = read(memory);
  return std::memcmp(bytes.data(), memory.host(), bytes.size()) == 0;
}

// In registers, in shared memory, with a tail; with the checkpoint's scale, of which some saturate.
TEST(GpuKvCodes, HeadsAreRotatedAndStoredAsOnTheCpu) {
  Numbers numbers(51);
  const Steps steps;
  for (const Layout& layout :
       {Layout{3, 128}, Layout{2, 64}, Layout{5, 32, 0, 0.003F}, Layout{2, 24}, Layout{3, 130},
        Layout{1, 40, 8}, Layout{1, 13, 5}, Layout{1, 576, 64}, Layout{2, 128, 0, 0.004F}}) {
    for (const DType type : {DType::f32, DType::bf16}) {
      const std::int64_t pairs = layout.width / 2 - (layout.width > 64 ? 0 : 2);
      Twin<float> cos_sin(numbers.floats(Steps::rows * 2 * pairs, -1, 1));
      TwinRows x(numbers, type, Steps::rows * layout.heads, layout.width, layout.width % 4);
      Twin<std::byte> memory = layout.memory();
      const auto store = [&](auto at, const ElementaryTable& table) {
        const kernels::Heads heads{.heads = layout.heads,
                                   .width = layout.width,
                                   .x = at(x),
                                   .x_type = type,
                                   .x_stride = layout.heads * x.stride(),
                                   .x_head_stride = x.stride(),
                                   .cos_sin = at(cos_sin),
                                   .pairs = pairs,
                                   .pages = layout.pages(at(memory)),
                                   .tail = layout.tails(at(memory))};
        table.prepare_heads({.rows = Steps::rows,
                             .all = &heads,
                             .count = 1,
                             .sequences = steps.all(at),
                             .table = steps.block_table(at)},
                            default_stream());
      };
      store(OnHost{}, kernels::cpu_table());
      store(OnDevice{}, device_table());
      finish();
      EXPECT_TRUE(same(memory)) << layout.heads << " heads of " << layout.width;
    }
  }
}

TEST(GpuKvCodes, LatentsArePreparedAsOneAfterTheOther) {
  Numbers numbers(52);
  const Steps steps;
  struct Shape {
    std::int64_t latent, pairs, gap;
  };
  for (const auto& [latent, pairs, gap] : {Shape{512, 32, 0}, Shape{20, 4, 4}, Shape{13, 3, 1}}) {
    for (const bool interleaved : {false, true}) {
      const Layout layout{1, latent + 2 * pairs, 2 * pairs};
      const std::int64_t heads = 3;
      const std::int64_t width = 8 + 2 * pairs;
      const Twin<float> cos_sin(numbers.floats(Steps::rows * 2 * pairs, -1, 1));
      const Twin<float> weight(numbers.floats(latent, 0.5, 1.5));
      const TwinRows kv(numbers, DType::f32, Steps::rows, layout.width, gap);
      const TwinRows q(numbers, DType::f32, Steps::rows * heads, width, gap);
      const TwinRows out(DType::bf16, Steps::rows * heads, width, gap);
      const Twin<std::byte> together = layout.memory();
      const Twin<std::byte> apart = layout.memory();
      auto* const rows = reinterpret_cast<float*>(kv.device());
      // Written by copies: what preparing together changes, preparing apart needs.
      const DeviceArray<std::byte> copy(kv.read_device());
      auto* const copied = reinterpret_cast<float*>(copy.data());
      const OnDevice at;
      device_table().prepare_latent({.rows = Steps::rows,
                                     .kv = rows,
                                     .kv_stride = kv.stride(),
                                     .latent = latent,
                                     .norm_weight = weight.device(),
                                     .cos_sin = cos_sin.device(),
                                     .pairs = pairs,
                                     .interleaved = interleaved,
                                     .q = reinterpret_cast<float*>(q.device()),
                                     .heads = heads,
                                     .width = width,
                                     .q_stride = heads * q.stride(),
                                     .q_head_stride = q.stride(),
                                     .out = out.device(),
                                     .out_type = DType::bf16,
                                     .out_stride = heads * out.stride(),
                                     .out_head_stride = out.stride(),
                                     .sequences = steps.all(at),
                                     .table = steps.block_table(at),
                                     .pages = layout.pages(together.device()),
                                     .tail = layout.tails(together.device())},
                                    default_stream());
      device_table().rms_norm({.size = {Steps::rows, 1, latent},
                               .x = copied,
                               .x_stride = kv.stride(),
                               .weight = weight.device(),
                               .out = copied,
                               .out_stride = kv.stride()},
                              default_stream());
      const kernels::Heads rotated{.heads = 1,
                                   .width = 2 * pairs,
                                   .x = copied + latent,
                                   .x_stride = kv.stride(),
                                   .cos_sin = cos_sin.device(),
                                   .pairs = pairs,
                                   .interleaved = interleaved,
                                   .out = copied + latent,
                                   .out_stride = kv.stride()};
      device_table().prepare_heads({.rows = Steps::rows, .all = &rotated, .count = 1},
                                   default_stream());
      const kernels::Heads stored{.heads = 1,
                                  .width = layout.width,
                                  .x = copied,
                                  .x_stride = kv.stride(),
                                  .pages = layout.pages(apart.device()),
                                  .tail = layout.tails(apart.device())};
      device_table().prepare_heads({.rows = Steps::rows,
                                    .all = &stored,
                                    .count = 1,
                                    .sequences = steps.all(at),
                                    .table = steps.block_table(at)},
                                   default_stream());
      finish();
      EXPECT_TRUE(read(together) == read(apart)) << "latent " << latent;
    }
  }
}

TEST(GpuKvCodes, PositionsAreGatheredAsTheCpuDoes) {
  Numbers numbers(53);
  const Steps steps;
  // Of the sequences' four and one positions; the second has none.
  const Twin<std::int32_t> begin(std::vector<std::int32_t>{0, 4, 4, 5});
  const Twin<std::int32_t> labels(std::vector<std::int32_t>{7, 7, -1, 3});
  for (const Layout& layout : {Layout{1, 576, 64}, Layout{1, 13, 5}, Layout{1, 64, 0, 0.01F}}) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(Steps::pages * layout.page_bytes()));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(16 + numbers.below(100));
    Twin<std::byte> memory(std::move(bytes));
    TwinRows out(DType::bf16, 5, layout.width, layout.width % 8);
    Twin<std::int32_t> out_labels(5);
    call_both(&ElementaryTable::gather_paged, [&](auto at) {
      return kernels::GatherPaged{.rows = 5,
                                  .begin = at(begin),
                                  .sequences = steps.all(at),
                                  .table = steps.block_table(at),
                                  .pages = layout.pages(at(memory)),
                                  .tail = layout.tails(at(memory)),
                                  .width = layout.width,
                                  .out = at(out),
                                  .out_stride = out.stride(),
                                  .labels = at(labels),
                                  .out_labels = at(out_labels)};
    });
    out.expect_same();
  }
}

std::vector<AttentionCase> coded_cases() {
  const AttentionCase codes{.kv_type = DType::f8_e4m3, .q_type = DType::bf16, .code_numbers = true};
  std::vector<AttentionCase> cases(12, codes);
  cases[0].lengths = {1, 70, 300, 64, 17};
  cases[1].heads = 6;
  cases[1].out_type = DType::bf16;
  cases[1].page_tokens = 64;
  cases[2].heads = 32;
  cases[2].kv_heads = 2;
  cases[2].window = 100;
  cases[2].sinks = true;
  cases[2].lengths = {5, 700};
  cases[3].heads = 16;
  cases[3].key_width = cases[3].value_width = 64;
  cases[3].window = 128;
  cases[3].sinks = true;
  cases[3].page_tokens = 32;
  cases[3].lengths = {400, 33, 129};
  cases[4].heads = 7;
  cases[4].kv_heads = 1;
  cases[4].key_width = cases[4].value_width = 64;
  cases[4].lengths = {9000, 1100};
  cases[5].heads = 16;
  cases[5].kv_heads = 1;
  cases[5].key_width = 576;
  cases[5].value_width = 512;
  cases[5].values_in_keys = true;
  cases[5].lengths = {90, 300, 3};
  cases[6] = cases[5];
  cases[6].heads = 128;
  cases[6].out_type = DType::bf16;
  cases[6].lengths = {70, 9};
  cases[11].heads = 24;
  cases[11].kv_heads = 1;
  cases[11].values_in_keys = true;
  cases[11].lengths = {200, 33};
  for (std::size_t i = 7; i < cases.size(); ++i)
    cases[i].key_width = cases[i].value_width = i == 7 || i == 9 ? 256 : 512;
  cases[7].gated = true;
  cases[7].lengths = {300, 70, 17};
  cases[8].lengths = {300, 70, 17};
  cases[9].heads = 16;
  cases[9].kv_heads = 1;
  cases[9].out_type = DType::bf16;
  cases[9].window = 100;
  cases[9].lengths = {700, 5};
  cases[10].heads = 16;
  cases[10].kv_heads = 1;
  cases[10].sinks = true;
  cases[10].page_tokens = 64;
  cases[10].lengths = {1200, 90};
  return cases;
}

std::string name(const AttentionCase& shape) {
  return cat(shape.heads, "/", shape.kv_heads, " heads of ", shape.key_width, "/",
             shape.value_width, ", window ", shape.window, ", pages of ", shape.page_tokens);
}

// Prompts, single tokens, and pieces behind others.
std::vector<std::vector<AttentionPiece>> steps_of(const AttentionCase& shape,
                                                  const AttentionWorld& world) {
  const std::int64_t length = shape.lengths[0];
  std::vector<std::vector<AttentionPiece>> steps = {world.last()};
  if (length < 1000) steps.push_back(world.whole());
  if (length > 40) steps.push_back({{0, length - 37, length}, {1, 0, 3}});
  return steps;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(double{a[i]} - double{b[i]});
    most = difference <= most ? most : std::isnan(difference) ? INFINITY : difference;
  }
  return most;
}

// The numbers of codes are bf16's, so the bound is that of pages of bf16 (attention_test.cc).
TEST(GpuKvCodes, AttentionAgreesWithTheCpu) {
  std::uint64_t seed = 101;
  for (const AttentionCase& shape : coded_cases()) {
    SCOPED_TRACE(name(shape));
    AttentionWorld world(shape, seed++);
    const double rounding = 1.0 / 512;
    const double bound = (rounding + (shape.out_type == DType::bf16 ? rounding : 0) + 1e-5) *
                         (shape.values_in_keys ? 2 : 1);
    for (const auto& pieces : steps_of(shape, world)) {
      const std::vector<float> expected = world.expected(pieces);
      for (const bool scratch : {false, true}) {
        SCOPED_TRACE(cat(pieces.size(), " sequences, scratch ", scratch));
        const std::vector<float> got = world.run(pieces, {.scratch = scratch});
        EXPECT_LE(largest_difference(got, expected), bound);
        EXPECT_LE(relative_error_of_heads(got, expected, shape.value_width),
                  largest_relative_error);
      }
    }
  }
}

TEST(GpuKvCodes, PlainAttentionAgreesWithTheCpu) {
  std::uint64_t seed = 121;
  std::vector<AttentionCase> cases = coded_cases();
  cases.push_back({.key_width = 24,
                   .value_width = 24,
                   .kv_type = DType::f8_e4m3,
                   .q_type = DType::bf16,
                   .code_numbers = true,
                   .key_scale = 0.006F,
                   .value_scale = 0.003F});
  for (AttentionCase shape : cases) {
    if (shape.lengths[0] > 1000) continue;
    shape.out_type = DType::f32;
    SCOPED_TRACE(name(shape));
    AttentionWorld world(shape, seed++);
    EXPECT_LE(largest_difference(world.run(world.whole(), {.plain = true}),
                                 world.expected(world.whole())),
              4e-6);
  }
}

// A checkpoint's scales are no powers of two: they multiply scores and sums at the end.
TEST(GpuKvCodes, FixedScalesAgreeWithTheCpu) {
  for (const std::int64_t width : {64, 128, 256}) {
    const AttentionCase shape{.heads = 8,
                              .kv_heads = 2,
                              .key_width = width,
                              .value_width = width,
                              .kv_type = DType::f8_e4m3,
                              .q_type = DType::bf16,
                              .code_numbers = true,
                              .key_scale = 0.006F,
                              .value_scale = 0.003F,
                              .lengths = {300, 70, 700}};
    AttentionWorld world(shape, 141);
    for (const auto& pieces : steps_of(shape, world)) {
      for (const bool scratch : {false, true}) {
        SCOPED_TRACE(cat("width ", width));
        const std::vector<float> got = world.run(pieces, {.scratch = scratch});
        const std::vector<float> expected = world.expected(pieces);
        EXPECT_LE(largest_difference(got, expected), 1.0 / 512 + 1e-5);
        EXPECT_LE(relative_error_of_heads(got, expected, width), largest_relative_error);
      }
    }
  }
}

// What bf16 pages with the same numbers give, bit for bit.
TEST(GpuKvCodes, AttentionHasTheBitsOfPagesInBf16) {
  std::uint64_t seed = 161;
  for (const AttentionCase& shape : coded_cases()) {
    if (shape.key_width == 576) continue;  // latents of codes go the plain way
    SCOPED_TRACE(name(shape));
    AttentionCase wide = shape;
    wide.kv_type = DType::bf16;
    AttentionWorld codes(shape, seed);
    AttentionWorld bf16s(wide, seed++);
    for (const auto& pieces : steps_of(shape, codes)) {
      const auto got = codes.run(pieces, {.batch_invariant = true});
      const auto wanted = bf16s.run(pieces, {.batch_invariant = true});
      EXPECT_EQ(std::memcmp(got.data(), wanted.data(), got.size() * sizeof(float)), 0)
          << pieces.size() << " sequences, " << largest_difference(got, wanted);
    }
  }
}

// Few rows and many have one order of sums, so heads wait for no company.
TEST(GpuKvCodes, OneOrderServesPromptsAndDecoding) {
  for (const std::int64_t width : {64, 128, 256}) {
    const AttentionCase shape{.heads = 8,
                              .kv_heads = 2,
                              .key_width = width,
                              .value_width = width,
                              .kv_type = DType::f8_e4m3,
                              .q_type = DType::bf16,
                              .code_numbers = true,
                              .lengths = {530, 70}};
    AttentionWorld world(shape, 181);
    const std::vector<float> whole = world.run(world.whole(), {});
    const std::vector<float> last = world.run({{0, 529, 530}}, {});
    const std::int64_t row = shape.heads * shape.value_width;
    EXPECT_EQ(std::memcmp(last.data(), whole.data() + 529 * row,
                          static_cast<std::size_t>(row) * sizeof(float)),
              0)
        << "width " << width;
  }
}

}  // namespace
}  // namespace motley::gpu_tests
