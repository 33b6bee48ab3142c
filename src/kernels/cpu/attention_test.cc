#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/system/thread_pool.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/cpu/test_numbers.h"
#include "kernels/elementary.h"
#include "kernels/kv_codes.h"

namespace motley::kernels::cpu {
namespace {

// One layer's attention over ragged sequences whose pages lie in any order.
struct Case {
  DType kv_type = DType::f32;
  DType activations = DType::f32;
  std::int64_t heads = 4;
  std::int64_t kv_heads = 2;
  std::int64_t key_width = 24;
  std::int64_t value_width = 20;
  std::int64_t window = 0;
  bool sinks = false;
  bool values_in_keys = false;  // v is the first value_width numbers of k
  // Of codes: the last columns of keys, in bf16; and the checkpoint's scales.
  std::int64_t tail = 0;
  float key_scale = 0;
  float value_scale = 0;
  std::int64_t page_tokens = 5;
  std::vector<std::int64_t> lengths = {1, 70, 13, 130};
};

// Pages of codes, [heads, tokens, width] of them, then exponents, then a gap.
class CodedPages {
 public:
  CodedPages(std::int64_t pages, std::int64_t heads, std::int64_t page_tokens, std::int64_t width)
      : heads_(heads),
        tokens_(page_tokens),
        width_(width),
        page_stride_(heads * page_tokens * (width + 1) + 5) {
    // All bits set is NaN.
    bytes_.assign(static_cast<std::size_t>(pages * page_stride_), 0xFF);
  }

  Pages pages(float scale) {
    return {.data = bytes_.data(),
            .type = DType::f8_e4m3,
            .page_stride = page_stride_,
            .token_stride = width_,
            .head_stride = tokens_ * width_,
            .exponents = bytes_.data() + heads_ * tokens_ * width_,
            .fixed_scale = scale};
  }

 private:
  std::int64_t heads_;
  std::int64_t tokens_;
  std::int64_t width_;
  std::int64_t page_stride_;
  std::vector<std::uint8_t> bytes_;
};

// The smallest power of two by which the numbers become no more than 448.
double scale_of(const TestRows& rows, std::int64_t row, std::int64_t count) {
  double largest = 0;
  for (std::int64_t i = 0; i < count; ++i)
    largest = std::max(largest, std::abs(double{rows.get(row, i)}));
  double scale = 1;
  while (largest > 448 * scale) scale *= 2;
  while (largest <= 224 * scale && scale > 1e-30) scale /= 2;
  return scale;
}

class World {
 public:
  World(const Case& shape, std::uint64_t seed) : shape_(shape), numbers_(seed) {
    for (const std::int64_t length : shape.lengths) longest_ = std::max(longest_, length);
    table_stride_ = (longest_ + shape.page_tokens - 1) / shape.page_tokens + 1;
    const auto sequences = static_cast<std::int64_t>(shape.lengths.size());
    const std::int64_t pages = sequences * table_stride_ + 3;
    // Pages are handed out backwards and with gaps; what nobody owns is poison.
    for (std::int64_t i = 0; i < sequences * table_stride_; ++i)
      table_.push_back(static_cast<std::int32_t>(pages - 1 - i));
    const std::int64_t rows = pages * shape.page_tokens * shape.kv_heads;
    if (coded()) {
      coded_k_.emplace(pages, shape.kv_heads, shape.page_tokens, shape.key_width - shape.tail);
      coded_v_.emplace(pages, shape.kv_heads, shape.page_tokens, shape.value_width);
      tail_.emplace(DType::bf16, rows, shape.tail);
    } else {
      k_.emplace(shape.kv_type, rows, shape.key_width);
      v_.emplace(shape.kv_type, rows, shape.value_width);
    }
    for (const std::int64_t length : shape.lengths) {
      keys_.emplace_back(numbers_, shape.activations, length * shape.kv_heads, shape.key_width, -2,
                         2);
      values_.emplace_back(numbers_, shape.activations, length * shape.kv_heads, shape.value_width);
      queries_.emplace_back(numbers_, shape.activations, length * shape.heads, shape.key_width, -2,
                            2);
    }
    sinks_ = numbers_.floats(shape.heads, -1, 3);
  }

  // Positions [begin, end) of some sequences as one call, keys and values stored first. Gives the
  // rows' outputs.
  struct Piece {
    std::size_t sequence;
    std::int64_t begin;
    std::int64_t end;
  };
  TestRows run(const ElementaryTable& table, StreamHandle stream,
               const std::vector<Piece>& pieces) {
    std::vector<std::int32_t> begins = {0};
    std::vector<std::int32_t> positions;
    std::vector<std::int32_t> pages;
    for (const Piece& piece : pieces) {
      for (std::int64_t p = piece.begin; p < piece.end; ++p)
        positions.push_back(static_cast<std::int32_t>(p));
      begins.push_back(static_cast<std::int32_t>(positions.size()));
      const auto first = table_.begin() + std::int64_t(piece.sequence) * table_stride_;
      pages.insert(pages.end(), first, first + table_stride_);
    }
    const auto rows = static_cast<std::int64_t>(positions.size());
    const TestRows q = gather(queries_, pieces, rows, shape_.heads);
    const TestRows k = gather(keys_, pieces, rows, shape_.kv_heads);
    const TestRows v = gather(values_, pieces, rows, shape_.kv_heads);
    TestRows out(shape_.activations, rows * shape_.heads, shape_.value_width);
    const Sequences sequences{static_cast<std::int64_t>(pieces.size()), begins.data(),
                              positions.data()};
    const BlockTable block_table{pages.data(), table_stride_, shape_.page_tokens};
    const Pages key_pages = coded() ? coded_k_->pages(shape_.key_scale) : pages_of(*k_);
    const Pages value_pages = coded() ? coded_v_->pages(shape_.value_scale) : pages_of(*v_);
    const PagedTail tail =
        shape_.tail == 0 ? PagedTail() : PagedTail{pages_of(*tail_), shape_.tail};
    const auto store = [&](const TestRows& from, const Pages& to, const PagedTail& behind) {
      TestRows x = from;
      const Heads heads{.heads = shape_.kv_heads,
                        .width = x.width(),
                        .x = x.data(),
                        .x_type = x.type(),
                        .x_stride = shape_.kv_heads * x.stride(),
                        .x_head_stride = x.stride(),
                        .pages = to,
                        .tail = behind};
      table.prepare_heads(
          {.rows = rows, .all = &heads, .count = 1, .sequences = sequences, .table = block_table},
          stream);
    };
    store(k, key_pages, tail);
    if (!shape_.values_in_keys) store(v, value_pages, {});
    table.attention({.sequences = sequences,
                     .table = block_table,
                     .k = key_pages,
                     .v = shape_.values_in_keys ? key_pages : value_pages,
                     .shared_k = tail.pages,
                     .shared_width = tail.width,
                     .heads = shape_.heads,
                     .kv_heads = shape_.kv_heads,
                     .key_width = shape_.key_width,
                     .value_width = shape_.value_width,
                     .scale = 0.3F,
                     .window = shape_.window,
                     .sinks = shape_.sinks ? sinks_.data() : nullptr,
                     .q = q.row(0),
                     .q_type = q.type(),
                     .q_stride = shape_.heads * q.stride(),
                     .q_head_stride = q.stride(),
                     .out = out.data(),
                     .out_type = out.type(),
                     .out_stride = shape_.heads * out.stride(),
                     .out_head_stride = out.stride()},
                    stream);
    EXPECT_TRUE(out.gaps_are_poison());
    return out;
  }

  // From the definition, in float64; keys and values as their pages round them.
  std::vector<double> expected(std::size_t sequence, std::int64_t position, std::int64_t head) {
    const std::int64_t kv_head = head / (shape_.heads / shape_.kv_heads);
    const std::int64_t first =
        shape_.window > 0 ? std::max<std::int64_t>(0, position - shape_.window + 1) : 0;
    const std::vector<double>& keys = stored_rows(keys_[sequence], shape_.key_scale);
    std::vector<double> scores;
    for (std::int64_t p = first; p <= position; ++p) {
      const double* const key = &keys[static_cast<std::size_t>((p * shape_.kv_heads + kv_head) *
                                                               keys_[sequence].width())];
      double dot = 0;
      for (std::int64_t j = 0; j < shape_.key_width; ++j)
        dot += queries_[sequence].at(position * shape_.heads + head, j) * key[j];
      scores.push_back(dot * static_cast<double>(0.3F));
    }
    double most = shape_.sinks ? double(sinks_[std::size_t(head)]) : -1e30;
    for (const double score : scores) most = std::max(most, score);
    double total = shape_.sinks ? std::exp(double(sinks_[std::size_t(head)]) - most) : 0;
    std::vector<double> sums(static_cast<std::size_t>(shape_.value_width), 0.0);
    const TestRows& from = shape_.values_in_keys ? keys_[sequence] : values_[sequence];
    const std::vector<double>& values =
        stored_rows(from, shape_.values_in_keys ? shape_.key_scale : shape_.value_scale);
    for (std::int64_t p = first; p <= position; ++p) {
      const double weight = std::exp(scores[static_cast<std::size_t>(p - first)] - most);
      total += weight;
      const double* const value =
          &values[static_cast<std::size_t>((p * shape_.kv_heads + kv_head) * from.width())];
      for (std::int64_t i = 0; i < shape_.value_width; ++i)
        sums[static_cast<std::size_t>(i)] += weight * value[i];
    }
    for (double& sum : sums) sum /= total;
    return sums;
  }

 private:
  bool coded() const { return shape_.kv_type == DType::f8_e4m3; }

  // All numbers of rows, as their pages have them; kept.
  const std::vector<double>& stored_rows(const TestRows& rows, float fixed) {
    std::vector<double>& all = stored_[&rows];
    if (!all.empty()) return all;
    for (std::int64_t row = 0; row < rows.rows(); ++row)
      for (std::int64_t i = 0; i < rows.width(); ++i) all.push_back(stored(rows, row, i, fixed));
    return all;
  }

  // A number as its page has it.
  double stored(const TestRows& rows, std::int64_t row, std::int64_t i, float fixed) const {
    const float value = rows.get(row, i);
    if (shape_.kv_type == DType::f32) return static_cast<double>(value);
    const std::int64_t codes = rows.width() - (shape_.values_in_keys ? shape_.tail : 0);
    if (!coded() || i >= codes) return static_cast<double>(bf16::from(value).to_float());
    const double scale = fixed > 0 ? double{fixed} : scale_of(rows, row, codes);
    return double{f8_e4m3::from(static_cast<float>(double{value} / scale)).to_float()} * scale;
  }

  // [pages, heads, tokens]: a layout of the test's own.
  Pages pages_of(TestRows& rows) const {
    return {.data = rows.data(),
            .type = rows.type(),
            .page_stride = shape_.kv_heads * shape_.page_tokens * rows.stride(),
            .token_stride = rows.stride(),
            .head_stride = shape_.page_tokens * rows.stride()};
  }

  TestRows gather(const std::vector<TestRows>& from, const std::vector<Piece>& pieces,
                  std::int64_t rows, std::int64_t heads) const {
    const std::int64_t width = from.front().width();
    TestRows all(shape_.activations, rows * heads, width);
    std::int64_t at = 0;
    for (const Piece& piece : pieces) {
      for (std::int64_t row = piece.begin * heads; row < piece.end * heads; ++row, ++at) {
        for (std::int64_t i = 0; i < width; ++i) all.set(at, i, from[piece.sequence].get(row, i));
      }
    }
    return all;
  }

  Case shape_;
  Numbers numbers_;
  std::int64_t longest_ = 0;
  std::int64_t table_stride_ = 0;
  std::vector<std::int32_t> table_;
  std::optional<TestRows> k_;
  std::optional<TestRows> v_;
  std::optional<CodedPages> coded_k_;
  std::optional<CodedPages> coded_v_;
  std::optional<TestRows> tail_;
  std::vector<TestRows> keys_;
  std::vector<TestRows> values_;
  std::vector<TestRows> queries_;
  std::vector<float> sinks_;
  std::map<const TestRows*, std::vector<double>> stored_;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const DType kv_type : {DType::f32, DType::bf16, DType::f8_e4m3}) {
    for (const DType activations : {DType::f32, DType::bf16}) {
      all.push_back({.kv_type = kv_type, .activations = activations});
      all.push_back({.kv_type = kv_type,
                     .activations = activations,
                     .heads = 9,
                     .kv_heads = 1,
                     .window = 6,
                     .sinks = true});
    }
  }
  all.push_back({.heads = 2, .kv_heads = 2, .key_width = 1, .value_width = 1, .window = 1});
  all.push_back({.heads = 20,
                 .kv_heads = 1,
                 .key_width = 40,
                 .value_width = 33,
                 .values_in_keys = true,
                 .page_tokens = 16});
  // Latents in codes, and scales of a checkpoint, of which some saturate.
  all.push_back({.kv_type = DType::f8_e4m3,
                 .heads = 20,
                 .kv_heads = 1,
                 .key_width = 57,
                 .value_width = 48,
                 .values_in_keys = true,
                 .tail = 9,
                 .page_tokens = 16});
  all.push_back({.kv_type = DType::f8_e4m3, .key_scale = 0.003F, .value_scale = 0.0025F});
  all.push_back({.heads = 8, .kv_heads = 1, .window = 64, .page_tokens = 64});
  all.push_back({.heads = 3, .kv_heads = 3, .sinks = true, .page_tokens = 1});
  return all;
}

class PagedAttention : public testing::TestWithParam<InstructionSet> {};
INSTANTIATE_TEST_SUITE_P(EverySet, PagedAttention, testing::ValuesIn(available_instruction_sets()),
                         [](const auto& test) { return std::string(name(test.param)); });

TEST_P(PagedAttention, EqualsAFloat64LoopOverRaggedSequences) {
  ThreadPool pool({.threads = 3});
  std::uint64_t seed = 0;
  for (const Case& shape : cases()) {
    World world(shape, ++seed);
    std::vector<World::Piece> pieces;
    for (std::size_t s = 0; s < shape.lengths.size(); ++s)
      pieces.push_back({s, 0, shape.lengths[s]});
    const TestRows out = world.run(elementary_table(GetParam()), {&pool}, pieces);
    std::int64_t row = 0;
    for (const World::Piece& piece : pieces) {
      for (std::int64_t p = piece.begin; p < piece.end; ++p, ++row) {
        for (std::int64_t h = 0; h < shape.heads; ++h) {
          const std::vector<double> expected = world.expected(piece.sequence, p, h);
          for (std::int64_t i = 0; i < shape.value_width; ++i) {
            const double bound = shape.activations == DType::f32 ? 1e-5 : 9e-3;
            ASSERT_NEAR(out.at(row * shape.heads + h, i), expected[static_cast<std::size_t>(i)],
                        bound)
                << "case " << seed << " sequence " << piece.sequence << " position " << p;
          }
        }
      }
    }
  }
}

TEST_P(PagedAttention, ARowsBitsDoNotDependOnBatchOrChunks) {
  ThreadPool pool({.threads = 3});
  std::uint64_t seed = 50;
  for (const Case& shape : cases()) {
    World whole_world(shape, ++seed);
    std::vector<World::Piece> whole;
    for (std::size_t s = 0; s < shape.lengths.size(); ++s)
      whole.push_back({s, 0, shape.lengths[s]});
    const ElementaryTable& table = elementary_table(GetParam());
    const TestRows expected = whole_world.run(table, {&pool}, whole);

    // The same numbers in chunks of 1 to 9 positions, two sequences at a time, another order.
    World world(shape, seed);
    std::vector<std::int64_t> done(shape.lengths.size(), 0);
    std::int64_t chunk = 1;
    for (bool more = true; more;) {
      more = false;
      for (std::size_t s = shape.lengths.size(); s-- > 0;) {
        std::vector<World::Piece> pieces;
        for (const std::size_t which : {s, (s + 1) % shape.lengths.size()}) {
          const std::int64_t end = std::min(done[which] + chunk, shape.lengths[which]);
          if (end > done[which]) pieces.push_back({which, done[which], end});
          done[which] = end;
          if (end < shape.lengths[which]) more = true;
        }
        chunk = chunk % 9 + 1;
        if (pieces.empty()) continue;
        const TestRows out = world.run(table, {}, pieces);
        std::int64_t row = 0;
        for (const World::Piece& piece : pieces) {
          std::int64_t before = 0;
          for (std::size_t i = 0; i < piece.sequence; ++i) before += shape.lengths[i];
          for (std::int64_t p = piece.begin; p < piece.end; ++p, ++row) {
            for (std::int64_t h = 0; h < shape.heads; ++h) {
              ASSERT_EQ(0,
                        std::memcmp(out.row(row * shape.heads + h),
                                    expected.row((before + p) * shape.heads + h), out.row_bytes()))
                  << "case " << seed << " sequence " << piece.sequence << " position " << p;
            }
          }
        }
      }
    }
  }
}

TEST(KvCodes, ExponentsAreTheSmallestThatHoldTheLargestNumber) {
  const auto exponent_of = [](float largest) { return kv_exponent(kv_largest(0, -largest)); };
  for (const float largest : {1e-30F, 0.3F, 1.0F, 447.9F, 448.0F, 448.1F, 896.0F, 57344.0F}) {
    const std::uint8_t exponent = exponent_of(largest);
    EXPECT_LE(largest, 448.0 * double{kv_power(exponent)}) << largest;
    EXPECT_GT(largest, 224.0 * double{kv_power(exponent)}) << largest;
    EXPECT_EQ(kv_power(exponent) * kv_inverse_power(exponent), 1.0F);
  }
  EXPECT_EQ(exponent_of(0), min_kv_exponent);
  EXPECT_EQ(exponent_of(1e-40F), min_kv_exponent);
  EXPECT_EQ(exponent_of(3e38F), max_kv_exponent);
  EXPECT_EQ(exponent_of(INFINITY), nan_kv_exponent);
  EXPECT_EQ(exponent_of(NAN), nan_kv_exponent);
  EXPECT_TRUE(std::isnan(kv_power(nan_kv_exponent)));
}

// A number that is not finite is not lost.
TEST(KvCodes, StoredRowsKeepZerosAndNaN) {
  constexpr std::int64_t width = 3;
  CodedPages memory(1, 1, 4, width);
  const Pages pages = memory.pages(0);
  std::vector<float> x = {0, 0, 0, 1, -2, 0.5F, 1, NAN, 0, 1, 2, -INFINITY};
  const std::vector<std::int32_t> begins = {0, 4};
  const std::vector<std::int32_t> positions = {0, 1, 2, 3};
  const std::int32_t page = 0;
  const Heads heads{.heads = 1,
                    .width = width,
                    .x = x.data(),
                    .x_stride = width,
                    .x_head_stride = width,
                    .pages = pages};
  cpu_table().prepare_heads({.rows = 4,
                             .all = &heads,
                             .count = 1,
                             .sequences = {1, begins.data(), positions.data()},
                             .table = {&page, 1, 4}},
                            {});
  const auto* const codes = static_cast<const f8_e4m3*>(pages.data);
  const auto stored = [&](int i) {
    return codes[i].to_float() * kv_power(pages.exponents[i / width]);
  };
  for (int i = 0; i < 2 * width; ++i) EXPECT_EQ(stored(i), x[static_cast<std::size_t>(i)]);
  for (int i = 2 * width; i < 4 * width; ++i) {
    EXPECT_FALSE(std::isnan(codes[i].to_float()));
    EXPECT_TRUE(std::isnan(stored(i)));
  }
}

}  // namespace
}  // namespace motley::kernels::cpu
