#include "kernels/cuda/elementary/arrange_inputs.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "gpu/twin.h"
#include "kernels/input_rounding.h"

// Arranged inputs have the bits of the arithmetic number by number, as they have on the CPU.
namespace motley::gpu_tests {
namespace {

using kernels::InputRounding;
using kernels::cpu::Numbers;
using Scales = InputRounding::Scales;

constexpr std::int64_t every_row = 11;

const std::vector<InputRounding>& roundings() {
  static const std::vector<InputRounding> all = {
      {},  // in an order alone
      {.scales = Scales::fixed, .scale = 0.02F, .zero = 3},
      {.scales = Scales::fixed, .type = DType::f8_e4m3, .scale = 0.003F},
      {.scales = Scales::row},
      {.scales = Scales::row, .type = DType::f8_e4m3},
      {.scales = Scales::row_block, .columns = 128},
      {.scales = Scales::row_block, .type = DType::f8_e4m3, .columns = 128},
      {.scales = Scales::row_block, .type = DType::f8_e4m3, .power_of_two = true, .columns = 32},
      {.scales = Scales::row_block, .type = DType::f8_e4m3, .columns = 50},
      {.scales = Scales::row_block, .columns = 4096},
  };
  return all;
}

std::string words(const InputRounding& rounding) {
  return cat("scales ", static_cast<int>(rounding.scales), ", ", name(rounding.type), ", columns ",
             rounding.columns);
}

// Magnitudes of all sizes, zeros in one row and something that is no number in another.
void draw(Numbers& numbers, std::int64_t rows, std::int64_t width, std::vector<float>& x) {
  x.clear();
  for (std::int64_t row = 0; row < rows; ++row) {
    const float size = std::ldexp(1.0F, static_cast<int>(row % 7) * 3 - 9);
    for (std::int64_t i = 0; i < width; ++i)
      x.push_back(row % 5 == 3 ? 0.0F : size * numbers.between(-1, 1));
  }
  x[static_cast<std::size_t>((rows - 1) * width)] = NAN;
}

std::vector<float> rounded(const InputRounding& rounding, const float* x, std::int64_t width) {
  const std::int64_t part = rounding.scales == Scales::row_block ? rounding.columns : width;
  std::vector<float> all;
  for (std::int64_t begin = 0; begin < width; begin += part) {
    const std::int64_t end = std::min(begin + part, width);
    float largest = 0;
    for (std::int64_t i = begin; i < end; ++i) largest = std::fmax(largest, std::fabs(x[i]));
    const float scale = input_scale(rounding, largest);
    for (std::int64_t i = begin; i < end; ++i) all.push_back(rounded_input(rounding, scale, x[i]));
  }
  return all;
}

std::vector<std::int32_t> shuffled(Numbers& numbers, std::int64_t width) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(width));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t k = order.size(); k > 1; --k)
    std::swap(order[k - 1], order[static_cast<std::size_t>(numbers.below(static_cast<int>(k)))]);
  return order;
}

// A row as its weight takes it; without an order as it stands.
std::vector<float> taken(const InputRounding& rounding, const std::vector<std::int32_t>& order,
                         const float* x, std::int64_t width) {
  std::vector<float> row(x, x + width);
  for (std::size_t k = 0; k < order.size(); ++k) row[k] = x[order[k]];
  if (rounding.scales == Scales::none) return row;
  return rounded(rounding, row.data(), width);
}

template <class T>
T narrowed(float x) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return x;
  } else {
    return T::from(x);
  }
}
float widened(float x) { return x; }
float widened(bf16 x) { return x.to_float(); }

template <class Out>
void expect_rows(const std::vector<Out>& read, std::int64_t stride, std::int64_t row,
                 const std::vector<float>& wanted) {
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const float got = widened(read[static_cast<std::size_t>(row * stride) + i]);
    const float want = widened(narrowed<Out>(wanted[i]));
    ASSERT_TRUE(got == want || (std::isnan(got) && std::isnan(want)))
        << got << " for " << want << ", row " << row << ", number " << i;
  }
}

template <class T>
void expect_rounded_rows(DType type) {
  Numbers numbers(1);
  for (const InputRounding& rounding : roundings()) {
    for (const std::int64_t width : {1, 7, 64, 130, 2048, 3001, 9000}) {
      for (const std::int64_t gap : {0, 3, 8}) {
        SCOPED_TRACE(cat(words(rounding), ", width ", width, ", gap ", gap));
        std::vector<float> x;
        draw(numbers, every_row, width + gap, x);
        std::vector<T> narrow;
        for (float& each : x) {
          narrow.push_back(narrowed<T>(each));
          each = widened(narrow.back());
        }
        const std::vector<std::int32_t> order =
            gap == 8 ? shuffled(numbers, width) : std::vector<std::int32_t>();
        const DeviceArray<T> from(narrow);
        const DeviceArray<T> to(narrow.size());
        const DeviceArray<std::int32_t> order_there(order);
        kernels::cuda::arrange_inputs({.rows = every_row,
                                       .width = width,
                                       .x = from.data(),
                                       .x_type = type,
                                       .x_stride = width + gap,
                                       .order = order.empty() ? nullptr : order_there.data(),
                                       .rounding = rounding,
                                       .out = to.data(),
                                       .out_stride = width + gap},
                                      default_stream());
        finish();
        const std::vector<T> read = to.read();
        for (std::int64_t row = 0; row < every_row; ++row)
          expect_rows(read, width + gap, row,
                      taken(rounding, order, x.data() + row * (width + gap), width));
      }
    }
  }
}

TEST(GpuArrangeInputs, HaveTheBitsOfOneNumberAtATime) {
  expect_rounded_rows<float>(DType::f32);
  expect_rounded_rows<bf16>(DType::bf16);
}

// Of rows that ranks cut, where the file's scales are of numbers of several ranks.
struct CutRow {
  std::int64_t width = 2100;
  // Inside blocks and at their bounds; one part has a block with both its neighbours.
  std::vector<std::int64_t> bounds{0, 100, 120, 640, 641, 2100};

  static bool is_cut(const InputRounding& rounding) {
    return rounding.scales == Scales::row || rounding.scales == Scales::row_block;
  }
  std::int64_t scales(const InputRounding& whole) const {
    return whole.scales == Scales::row ? 1 : (width + whole.columns - 1) / whole.columns;
  }
};

// The part of a rank, as its weight takes it once the maxima of all ranks are known.
template <class T>
class CutPart {
 public:
  CutPart(const InputRounding& whole, const CutRow& row, std::size_t rank, const std::vector<T>& x)
      : rounding(whole),
        begin(row.bounds[rank]),
        size(row.bounds[rank + 1] - begin),
        scales_(row.scales(whole)) {
    if (whole.scales == Scales::row_block) {
      rounding.first = begin % whole.columns;
      first_ = begin / whole.columns;
    }
    std::vector<T> own;
    for (std::int64_t r = 0; r < every_row; ++r)
      own.insert(own.end(), x.begin() + r * row.width + begin,
                 x.begin() + r * row.width + begin + size);
    x_ = DeviceArray<T>(own);
  }

  std::vector<float> own_maxima(DType type) const {
    const DeviceArray<float> out(static_cast<std::size_t>(every_row * scales_));
    device_table().input_maxima({.rows = every_row,
                                 .width = size,
                                 .x = x_.data(),
                                 .x_type = type,
                                 .x_stride = size,
                                 .rounding = rounding,
                                 .scales = scales_,
                                 .first = first_,
                                 .out = out.data()},
                                default_stream());
    finish();
    return out.read();
  }
  std::vector<T> arranged(DType type, const DeviceArray<float>& maxima) const {
    const DeviceArray<T> out(x_.size());
    kernels::cuda::arrange_inputs({.rows = every_row,
                                   .width = size,
                                   .x = x_.data(),
                                   .x_type = type,
                                   .x_stride = size,
                                   .rounding = rounding,
                                   .maxima = {maxima.data() + first_, scales_},
                                   .out = out.data(),
                                   .out_stride = size},
                                  default_stream());
    finish();
    return out.read();
  }

  InputRounding rounding;
  std::int64_t begin, size;

 private:
  std::int64_t scales_;
  std::int64_t first_ = 0;
  DeviceArray<T> x_;
};

template <class T>
void expect_parts_of_rows(DType type) {
  Numbers numbers(5);
  const CutRow row;
  for (const InputRounding& whole : roundings()) {
    if (!CutRow::is_cut(whole)) continue;
    SCOPED_TRACE(words(whole));
    std::vector<float> x;
    draw(numbers, every_row, row.width, x);
    std::vector<T> narrow;
    for (float& each : x) {
      narrow.push_back(narrowed<T>(each));
      each = widened(narrow.back());
    }
    std::vector<CutPart<T>> parts;
    std::vector<float> maxima(static_cast<std::size_t>(every_row * row.scales(whole)), 0.0F);
    for (std::size_t rank = 0; rank + 1 < row.bounds.size(); ++rank) {
      const std::vector<float> own = parts.emplace_back(whole, row, rank, narrow).own_maxima(type);
      for (std::size_t i = 0; i < own.size(); ++i) {
        ASSERT_GE(own[i], 0) << "maximum " << i << " of rank " << rank;
        maxima[i] = std::max(maxima[i], own[i]);
      }
    }
    const DeviceArray<float> of_all(maxima);
    for (const CutPart<T>& part : parts) {
      const std::vector<T> read = part.arranged(type, of_all);
      for (std::int64_t r = 0; r < every_row; ++r) {
        const std::vector<float> wanted = taken(whole, {}, x.data() + r * row.width, row.width);
        expect_rows(read, part.size, r,
                    {wanted.begin() + part.begin, wanted.begin() + part.begin + part.size});
      }
    }
  }
}

TEST(GpuArrangeInputs, PartsOfRowsAreThoseOfWholeRows) {
  expect_parts_of_rows<float>(DType::f32);
  expect_parts_of_rows<bf16>(DType::bf16);
}

TEST(GpuArrangeInputs, MaximaOfRowsThatAreElsewhereAreZero) {
  const std::vector<float> x{NAN, -3, 2, NAN, NAN, NAN, 0, -INFINITY, 1};
  const DeviceArray<float> from(x);
  const DeviceArray<std::int32_t> x_rows(std::vector<std::int32_t>{2, 7, 0, 1, 3});
  const DeviceArray<std::int32_t> x_count(std::vector<std::int32_t>{3});
  const DeviceArray<float> out(5);
  device_table().input_maxima({.rows = 5,
                               .width = 3,
                               .x = from.data(),
                               .x_stride = 3,
                               .x_rows = x_rows.data(),
                               .x_count = x_count.data(),
                               .rounding = {.scales = Scales::row},
                               .scales = 1,
                               .out = out.data()},
                              default_stream());
  finish();
  EXPECT_EQ(out.read(), (std::vector<float>{INFINITY, 0, 3, 0, 0}));
}

// A layer's pairs: experts of their own scales, tokens in any order, and pairs without an expert.
template <class X, class Out>
void expect_rounded_places(DType x_type, DType out_type) {
  Numbers numbers(2);
  const std::vector<std::int32_t> tokens = {4, 0, 0, 3, 10, 7, 7, 1, 2, 9};
  const std::vector<std::int32_t> expert_begin = {0, 0, 3, 3, 7, 8};  // experts 0 and 2 have none
  constexpr std::int64_t routed = 8;
  const auto pairs = static_cast<std::int64_t>(tokens.size());
  for (const InputRounding& rounding : roundings()) {
    for (const std::int64_t width : {1, 72, 130, 2048}) {
      for (const bool by_token : {true, false}) {
        SCOPED_TRACE(cat(words(rounding), ", width ", width, by_token ? ", by token" : ""));
        std::vector<float> x;
        draw(numbers, every_row, width, x);
        std::vector<X> narrow;
        for (float& each : x) {
          narrow.push_back(narrowed<X>(each));
          each = widened(narrow.back());
        }
        // Experts 1 and 3 have orders of their own.
        std::vector<std::vector<std::int32_t>> orders(5);
        for (const std::size_t e : {1, 3}) orders[e] = shuffled(numbers, width);
        const DeviceArray<std::int32_t> first_order(orders[1]);
        const DeviceArray<std::int32_t> second_order(orders[3]);
        std::vector<kernels::WeightView> experts(5);
        experts[1].input_order = first_order.data();
        experts[3].input_order = second_order.data();
        for (std::size_t e = 0; e < experts.size(); ++e) {
          experts[e].inputs = rounding;
          experts[e].inputs.scale *= static_cast<float>(e + 1);
        }
        const DeviceArray<X> from(narrow);
        const DeviceArray<Out> to(static_cast<std::size_t>(pairs * width));
        const DeviceArray<std::int32_t> token_of(tokens);
        const DeviceArray<std::int32_t> begin_of(expert_begin);
        const DeviceArray<kernels::WeightView> views(experts);
        kernels::cuda::arrange_expert_inputs({.pairs = pairs,
                                              .width = width,
                                              .x = from.data(),
                                              .x_type = x_type,
                                              .x_stride = width,
                                              .tokens = by_token ? token_of.data() : nullptr,
                                              .expert_begin = begin_of.data(),
                                              .experts = 5,
                                              .roundings = &views.data()->inputs,
                                              .orders = &views.data()->input_order,
                                              .stride = sizeof(kernels::WeightView),
                                              .columns = rounding.columns,
                                              .out = to.data(),
                                              .out_type = out_type},
                                             default_stream());
        finish();
        const std::vector<Out> read = to.read();
        for (std::int64_t place = 0; place < routed; ++place) {
          std::size_t expert = 0;
          while (expert_begin[expert + 1] <= place) ++expert;
          const std::int64_t row = by_token ? tokens[static_cast<std::size_t>(place)] : place;
          expect_rows(read, width, place,
                      taken(experts[expert].inputs, orders[expert], x.data() + row * width, width));
        }
        for (std::int64_t i = routed * width; i < pairs * width; ++i)
          ASSERT_TRUE(std::isnan(widened(read[static_cast<std::size_t>(i)]))) << "not written";
      }
    }
  }
}

TEST(GpuArrangeInputs, OfPairsAreThoseOfTheirExperts) {
  expect_rounded_places<bf16, bf16>(DType::bf16, DType::bf16);
  expect_rounded_places<bf16, float>(DType::bf16, DType::f32);
  expect_rounded_places<float, float>(DType::f32, DType::f32);
}

}  // namespace
}  // namespace motley::gpu_tests
