#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "gpu/device_weight.h"
#include "gpu/grouped_expectations.h"
#include "gpu/twin.h"
#include "kernels/cuda/elementary/arrange_inputs.h"
#include "kernels/cuda/linear/linear.h"

// Norms that round their result for the products behind them, against a launch for each.
namespace motley::gpu_tests {
namespace {

using kernels::AddAndNorm;
using kernels::ArrangeInputs;
using kernels::InputForm;
using kernels::InputRounding;
using kernels::Linear;
using kernels::WeightKind;
using kernels::cpu::Numbers;
using Scales = InputRounding::Scales;

const std::vector<InputRounding>& roundings() {
  constexpr DType f8 = DType::f8_e4m3;
  static const std::vector<InputRounding> all = {
      {.scales = Scales::fixed, .scale = 0.02F},
      {.scales = Scales::fixed, .scale = 0.02F, .zero = 3},
      {.scales = Scales::fixed, .type = f8, .scale = 0.003F},
      {.scales = Scales::row},
      {.scales = Scales::row, .type = f8},
      {.scales = Scales::row_block, .columns = 128},
      {.scales = Scales::row_block, .type = f8, .columns = 128},
      {.scales = Scales::row_block, .type = f8, .power_of_two = true, .columns = 128},
  };
  return all;
}

std::string words(const InputRounding& rounding, InputForm form) {
  return cat("scales ", static_cast<int>(rounding.scales), ", ", name(rounding.type), ", zero ",
             rounding.zero, form == InputForm::codes ? ", codes" : ", numbers");
}

bool has_form(const InputRounding& rounding, std::int64_t width, InputForm form) {
  return form == InputForm::numbers || (rounding.zero == 0 && width % 16 == 0);
}

void write(const TwinRows& rows, std::int64_t row, std::int64_t column, float value) {
  ASSERT_EQ(
      cudaMemcpy(rows.device() + 4 * (row * rows.stride() + column), &value, 4, cudaMemcpyDefault),
      cudaSuccess);
}

void clear(const TwinRows& rows, std::int64_t row) {
  ASSERT_EQ(cudaMemset(rows.device() + 4 * row * rows.stride(), 0,
                       4 * static_cast<std::size_t>(rows.width())),
            cudaSuccess);
}

// A norm with or without a sum before it. Row 0 has an infinity, row 1 a NaN, row 2 nothing but
// zeros.
struct NormCase {
  TwinRows a, b, x, out, rounded;
  Twin<float> weight;
  AddAndNorm call;

  NormCase(std::int64_t rows, std::int64_t width, bool sums, bool weight_has_nan)
      : NormCase(Numbers(17), rows, width, sums, weight_has_nan) {}

  ArrangeInputs inputs(const InputRounding& rounding) const {
    return {.rows = out.rows(),
            .width = out.width(),
            .x = out.device(),
            .x_type = DType::bf16,
            .x_stride = out.stride(),
            .rounding = rounding,
            .out = rounded.device(),
            .out_stride = rounded.stride()};
  }
  void run() const {
    if (call.add.out != nullptr)
      device_table().add_and_norm(call, default_stream());
    else
      device_table().rms_norm(call.norm, default_stream());
  }
  std::vector<std::vector<std::byte>> read() const {
    finish();
    return {x.read_device(), out.read_device(), rounded.read_device()};
  }

 private:
  static std::vector<float> weights(Numbers& numbers, std::int64_t width, bool has_nan) {
    std::vector<float> all = numbers.floats(width, 0.5, 1.5);
    if (has_nan) all[static_cast<std::size_t>(width) - 3] = NAN;
    return all;
  }
  NormCase(Numbers numbers, std::int64_t rows, std::int64_t width, bool sums, bool weight_has_nan)
      : a(numbers, DType::f32, rows, width, 4, {-4, 4}),
        b(numbers, DType::f32, rows, width, 8, {-4, 4}),
        x(sums ? TwinRows(DType::f32, rows, width, 4)
               : TwinRows(numbers, DType::f32, rows, width, 4, {-4, 4})),
        out(DType::bf16, rows, width, 8),
        rounded(DType::bf16, rows, width, 0),
        weight(weights(numbers, width, weight_has_nan)) {
    const TwinRows& first = sums ? a : x;
    write(first, 0, 3, INFINITY);
    write(first, 1, width - 1, NAN);
    clear(first, 2);
    clear(b, 2);
    if (sums)
      call.add = {.rows = rows,
                  .width = width,
                  .a = a.device(),
                  .a_stride = a.stride(),
                  .b = b.device(),
                  .b_stride = b.stride(),
                  .out = x.device(),
                  .out_stride = x.stride()};
    call.norm = {.size = {rows, 1, width},
                 .x = x.device(),
                 .x_stride = x.stride(),
                 .weight = weight.device(),
                 .out = out.device(),
                 .out_type = DType::bf16,
                 .out_stride = out.stride()};
  }
};

void round_apart(const ArrangeInputs& inputs, InputForm form) {
  if (form == InputForm::codes)
    kernels::cuda::code_inputs(inputs, default_stream());
  else
    kernels::cuda::arrange_inputs(inputs, default_stream());
}

void expect_same_bits(std::int64_t rows, std::int64_t width, bool sums, bool weight_has_nan) {
  for (const InputRounding& rounding : roundings()) {
    for (const InputForm form : {InputForm::numbers, InputForm::codes}) {
      if (!has_form(rounding, width, form)) continue;
      SCOPED_TRACE(words(rounding, form));
      const NormCase apart(rows, width, sums, weight_has_nan);
      apart.run();
      round_apart(apart.inputs(rounding), form);
      NormCase together(rows, width, sums, weight_has_nan);
      together.call.norm.rounded = {
          .form = form, .rounding = rounding, .data = together.rounded.device()};
      together.run();
      const auto wanted = apart.read();
      const auto got = together.read();
      EXPECT_TRUE(got[0] == wanted[0]) << "sums";
      EXPECT_TRUE(got[1] == wanted[1]) << "norms";
      EXPECT_TRUE(got[2] == wanted[2]) << "rounded rows";
    }
  }
}

// Teams of a warp, of several and of a whole block, rows that they keep in registers and longer
// ones, rows that end inside 128 numbers; few rows, whose launch warms up, and many.
TEST(RoundedNorms, HaveTheBitsOfTheirParts) {
  for (const std::int64_t width : {20, 96, 132, 144, 400, 2048, 4096, 4112, 7168}) {
    for (const std::int64_t rows : {3, 37}) {
      for (const bool sums : {false, true}) {
        for (const bool weight_has_nan : {false, true}) {
          SCOPED_TRACE(cat(rows, " rows of ", width, sums ? ", a sum" : "",
                           weight_has_nan ? ", a NaN in each" : ""));
          expect_same_bits(rows, width, sums, weight_has_nan);
        }
      }
    }
  }
}

// The sum over experts, its norm and what products read of that.
TEST(RoundedNorms, OfExpertsHaveTheBitsOfTheirParts) {
  using kernels::cuda::GroupedTiles;
  constexpr GroupedTiles tiles{.width = 16, .gather = GroupedTiles::Gather::copies};
  for (const int hidden : {96, 2064, 4112}) {
    const WorldShape shape{
        .experts = 12, .experts_per_token = 3, .hidden = hidden, .intermediate = 16};
    const WorldLayer layer = make_layer(shape, 31);
    const PackedLayer packed_layer(layer);
    const WorldRows rows = make_rows(shape, 70, WorldRoutes::strange, 0, 32);
    GroupedBatch batch(layer, packed_layer, rows, nullptr);
    Numbers numbers(33);
    const TwinRows shared_rows(numbers, DType::f32, rows.tokens, hidden, 4, {-4, 4});
    for (const bool shared : {false, true}) {
      for (const InputRounding& rounding : roundings()) {
        for (const InputForm form : {InputForm::numbers, InputForm::codes}) {
          if (!has_form(rounding, hidden, form)) continue;
          SCOPED_TRACE(cat(hidden, " wide, ", words(rounding, form), shared ? ", shared" : ""));
          std::vector<std::vector<std::vector<std::byte>>> read;
          for (const bool together : {false, true}) {
            const NormCase norm(rows.tokens, hidden, true, false);
            kernels::AfterExperts next{.rows = norm.call};
            next.rows.add.b = batch.params.out;
            next.rows.add.b_stride = hidden;
            if (shared)
              next.shared = {.rows = rows.tokens,
                             .width = hidden,
                             .x = shared_rows.device(),
                             .x_stride = shared_rows.stride(),
                             .y = static_cast<float*>(batch.params.out),
                             .y_stride = hidden};
            if (together)
              next.rows.norm.rounded = {
                  .form = form, .rounding = rounding, .data = norm.rounded.device()};
            ASSERT_TRUE(kernels::cuda::grouped_sums_into(next, tiles));
            batch.params.next = &next;
            batch.run(tiles);
            if (!together) round_apart(norm.inputs(rounding), form);
            read.push_back(norm.read());
          }
          EXPECT_TRUE(read[1][0] == read[0][0]) << "sums";
          EXPECT_TRUE(read[1][1] == read[0][1]) << "norms";
          EXPECT_TRUE(read[1][2] == read[0][2]) << "rounded rows";
        }
      }
    }
  }
}

// A norm with a product of its result.
struct NormAndProduct {
  NormCase norm;
  TwinRows y;
  ArrangeInputs inputs;
  Linear product;
  kernels::Linears products;

  NormAndProduct(const DeviceWeight& w, std::int64_t rows, bool sums)
      : norm(rows, w.view.in, sums, false),
        y(DType::f32, rows, w.view.out, 0),
        inputs(norm.inputs(w.view.inputs)),
        product{.rows = rows,
                .x = norm.rounded.device(),
                .x_type = DType::bf16,
                .x_stride = norm.rounded.stride(),
                .w = w.view,
                .w_rows_per_head = w.view.out,
                .out = w.view.out,
                .y = reinterpret_cast<float*>(y.device()),
                .y_stride = y.stride(),
                .exact = false},
        products{.all = &product, .count = 1, .inputs = &inputs} {}
  NormAndProduct(const NormAndProduct&) = delete;
  NormAndProduct& operator=(const NormAndProduct&) = delete;

  InputForm form() const {
    return device_table().norm_inputs(norm.call, products, default_stream());
  }
  std::vector<std::byte> result() const {
    finish();
    return y.read_device();
  }
};

DeviceWeight fp8_weight() {
  Numbers numbers(5);
  return on_device_rounded(
      numbers,
      {.kind = WeightKind::f8_e4m3,
       .block_rows = 128,
       .block_columns = 128,
       .inputs = {.scales = Scales::row_block, .type = DType::f8_e4m3, .columns = 128}},
      256, 512);
}

// Codes where there are many rows, numbers where there are few: products have the bits that they
// have of inputs rounded apart.
TEST(RoundedNorms, ProductsReadWhatTheyWouldHaveMade) {
  const DeviceWeight w = fp8_weight();
  for (const std::int64_t rows : {16, 17, 300}) {
    for (const bool sums : {false, true}) {
      SCOPED_TRACE(cat(rows, " rows", sums ? ", a sum" : ""));
      const NormAndProduct apart(w, rows, sums);
      apart.norm.run();
      device_table().linears(apart.products, default_stream());
      NormAndProduct together(w, rows, sums);
      const InputForm form = together.form();
      EXPECT_EQ(form, rows > 16 ? InputForm::codes : InputForm::numbers);
      together.norm.call.norm.rounded = {
          .form = form, .rounding = together.inputs.rounding, .data = together.inputs.out};
      together.norm.run();
      together.products.coded = form == InputForm::codes;
      if (form == InputForm::numbers) together.products.inputs = nullptr;
      device_table().linears(together.products, default_stream());
      EXPECT_TRUE(together.result() == apart.result());
    }
  }
}

TEST(RoundedNorms, LeaveOtherInputsToTheirOwnLaunch) {
  const DeviceWeight w = fp8_weight();
  const DeviceArray<std::int32_t> order(512);
  const DeviceArray<float> maxima(300 * 4);
  const auto form_with = [&](auto change) {
    NormAndProduct own(w, 300, true);
    change(own);
    return own.form();
  };
  EXPECT_EQ(form_with([](NormAndProduct&) {}), InputForm::codes);
  EXPECT_EQ(form_with([&](NormAndProduct& p) { p.inputs.order = order.data(); }), InputForm::none);
  EXPECT_EQ(form_with([&](NormAndProduct& p) { p.inputs.maxima = {maxima.data(), 4}; }),
            InputForm::none);
  EXPECT_EQ(form_with([](NormAndProduct& p) { p.inputs.rounding.columns = 64; }), InputForm::none);
  EXPECT_EQ(form_with([](NormAndProduct& p) { p.inputs.rounding.first = 32; }), InputForm::none);
  EXPECT_EQ(form_with([](NormAndProduct& p) { p.norm.call.norm.out_type = DType::f32; }),
            InputForm::none);
  EXPECT_EQ(form_with([](NormAndProduct& p) { p.norm.call.add.b_type = DType::bf16; }),
            InputForm::none);
}

}  // namespace
}  // namespace motley::gpu_tests
