#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "gpu/device_weight.h"
#include "gpu/twin.h"
#include "kernels/cuda/elementary/arrange_inputs.h"
#include "kernels/cuda/linear/linear.h"

// Activations with a norm before them or rounded rows after them, and sums that a shared expert
// joins, against a launch for each part.
namespace motley::gpu_tests {
namespace {

using kernels::ActivateAndMultiply;
using kernels::ArrangeInputs;
using kernels::InputForm;
using kernels::InputRounding;
using kernels::cpu::Numbers;
using Scales = InputRounding::Scales;

constexpr std::int64_t part = 128;

float* floats(const TwinRows& rows) { return reinterpret_cast<float*>(rows.device()); }

// Row 0 has an infinity, row 1 a NaN, row 2 nothing but zeros.
void make_strange(const TwinRows& rows) {
  const auto write = [&](std::int64_t row, std::int64_t column, float value) {
    ASSERT_EQ(cudaMemcpy(floats(rows) + row * rows.stride() + column, &value, 4, cudaMemcpyDefault),
              cudaSuccess);
  };
  write(0, 3, INFINITY);
  write(1, rows.width() - 1, NAN);
  ASSERT_EQ(
      cudaMemset(floats(rows) + 2 * rows.stride(), 0, 4 * static_cast<std::size_t>(rows.width())),
      cudaSuccess);
}

struct ActivationCase {
  TwinRows gate, up, out, rounded;
  Twin<float> weight;
  ActivateAndMultiply call;

  ActivationCase(std::int64_t rows, std::int64_t width) : ActivationCase(Numbers(7), rows, width) {}

  kernels::RmsNorm norm() const {
    return {.size = {gate.rows(), gate.width() / part, part},
            .x = up.device(),
            .x_stride = up.stride(),
            .x_part_stride = part,
            .weight = weight.device(),
            .eps = 1e-5F,
            .out = up.device(),
            .out_stride = up.stride(),
            .out_part_stride = part};
  }
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

 private:
  ActivationCase(Numbers numbers, std::int64_t rows, std::int64_t width)
      : gate(numbers, DType::f32, rows, width, 4, {-6, 6}),
        up(numbers, DType::f32, rows, width, 8, {-4, 4}),
        out(DType::bf16, rows, width, 8),
        rounded(DType::bf16, rows, width, 0),
        weight(numbers.floats(part, 0.5, 1.5)) {
    make_strange(up);
    call = {.rows = rows,
            .width = width,
            .gate = gate.device(),
            .up = up.device(),
            .gate_stride = gate.stride(),
            .up_stride = up.stride(),
            .out = out.device(),
            .out_type = DType::bf16,
            .out_stride = out.stride()};
  }
};

// Widths of whole blocks, and one that ends inside a block.
TEST(ActivatedBlocks, HaveTheBitsOfTheirParts) {
  const std::vector<InputRounding> roundings = {
      {},
      {.scales = Scales::fixed, .scale = 0.02F, .zero = 3},
      {.scales = Scales::fixed, .type = DType::f8_e4m3, .scale = 0.003F},
      {.scales = Scales::row_block, .columns = 128},
      {.scales = Scales::row_block, .type = DType::f8_e4m3, .columns = 128},
      {.scales = Scales::row_block, .type = DType::f8_e4m3, .power_of_two = true, .columns = 128},
  };
  for (const std::int64_t width : {128, 208, 512, 4096}) {
    for (const std::int64_t rows : {3, 70}) {
      for (const bool normed : {false, true}) {
        if (normed && width % part != 0) continue;
        for (const InputRounding& rounding : roundings) {
          for (const InputForm form : {InputForm::none, InputForm::numbers, InputForm::codes}) {
            if ((form == InputForm::none) != (rounding.scales == Scales::none)) continue;
            if (form == InputForm::codes && rounding.type != DType::f8_e4m3) continue;
            SCOPED_TRACE(cat(rows, " x ", width, normed ? ", normed" : "", ", scales ",
                             static_cast<int>(rounding.scales), ", form ", static_cast<int>(form)));
            const ActivationCase apart(rows, width);
            if (normed) device_table().rms_norm(apart.norm(), default_stream());
            device_table().activate_and_multiply(apart.call, default_stream());
            if (form == InputForm::codes)
              kernels::cuda::code_inputs(apart.inputs(rounding), default_stream());
            else if (form == InputForm::numbers)
              kernels::cuda::arrange_inputs(apart.inputs(rounding), default_stream());
            ActivationCase together(rows, width);
            if (normed) {
              together.call.norm = {together.weight.device(), part, 1e-5F};
              ASSERT_TRUE(device_table().takes_norm_of_parts(together.call));
            }
            together.call.rounded = {
                .form = form, .rounding = rounding, .data = together.rounded.device()};
            device_table().activate_blocks(together.call, default_stream());
            finish();
            ASSERT_TRUE(launches().ok());
            EXPECT_TRUE(together.out.read_device() == apart.out.read_device());
            EXPECT_TRUE(together.rounded.read_device() == apart.rounded.read_device());
          }
        }
      }
    }
  }
}

TEST(ActivatedBlocks, LeaveOtherInputsToTheirOwnLaunch) {
  Numbers numbers(5);
  const DeviceWeight w = on_device_rounded(
      numbers,
      {.kind = kernels::WeightKind::f8_e4m3,
       .block_rows = 128,
       .block_columns = 128,
       .inputs = {.scales = Scales::row_block, .type = DType::f8_e4m3, .columns = 128}},
      256, 512);
  const auto form_with = [&](std::int64_t rows, auto change) {
    ActivationCase own(rows, 512);
    ArrangeInputs inputs = own.inputs(w.view.inputs);
    const TwinRows y(DType::f32, rows, w.view.out, 0);
    const kernels::Linear product{.rows = rows,
                                  .x = own.rounded.device(),
                                  .x_type = DType::bf16,
                                  .x_stride = own.rounded.stride(),
                                  .w = w.view,
                                  .w_rows_per_head = w.view.out,
                                  .out = w.view.out,
                                  .y = floats(y),
                                  .y_stride = y.stride(),
                                  .exact = false};
    change(own.call, inputs);
    return device_table().activation_inputs(
        own.call, {.all = &product, .count = 1, .inputs = &inputs}, default_stream());
  };
  using Call = ActivateAndMultiply;
  EXPECT_EQ(form_with(300, [](Call&, ArrangeInputs&) {}), InputForm::codes);
  EXPECT_EQ(form_with(16, [](Call&, ArrangeInputs&) {}), InputForm::numbers);
  EXPECT_EQ(form_with(300, [](Call& p, ArrangeInputs&) { p.out_type = DType::f32; }),
            InputForm::none);
  EXPECT_EQ(form_with(300, [](Call& p, ArrangeInputs&) { ++p.up_stride; }), InputForm::none);
  EXPECT_EQ(form_with(300, [](Call&, ArrangeInputs& i) { i.rounding.scales = Scales::row; }),
            InputForm::none);
  EXPECT_EQ(form_with(300, [](Call&, ArrangeInputs& i) { i.rounding.first = 32; }),
            InputForm::none);
}

// The experts' sum gets the shared expert's rows, weighed or not, and the residual gets both.
TEST(SharedSums, HaveTheBitsOfTheirParts) {
  for (const std::int64_t width : {96, 2048, 4112}) {
    for (const std::int64_t rows : {3, 37}) {
      for (const bool scaled : {false, true}) {
        for (const bool rounds : {false, true}) {
          SCOPED_TRACE(
              cat(rows, " x ", width, scaled ? ", scaled" : "", rounds ? ", rounded" : ""));
          const InputRounding rounding{.scales = Scales::row};
          std::vector<std::vector<std::byte>> read[2];
          for (const bool together : {false, true}) {
            Numbers numbers(11);
            const TwinRows a(numbers, DType::f32, rows, width, 4, {-4, 4});
            const TwinRows experts(numbers, DType::f32, rows, width, 0, {-4, 4});
            const TwinRows shared(numbers, DType::f32, rows, width, 8, {-4, 4});
            const TwinRows scale(numbers, DType::f32, rows, 1, 3, {-2, 2});
            const TwinRows sum(DType::f32, rows, width, 4);
            const TwinRows out(DType::bf16, rows, width, 8);
            const TwinRows rounded(DType::bf16, rows, width, 0);
            const Twin<float> weight(numbers.floats(width, 0.5, 1.5));
            make_strange(a);
            kernels::AfterExperts call{.shared = {.rows = rows,
                                                  .width = width,
                                                  .x = shared.device(),
                                                  .x_stride = shared.stride(),
                                                  .scale = scaled ? floats(scale) : nullptr,
                                                  .scale_stride = scale.stride(),
                                                  .sigmoid = scaled,
                                                  .y = floats(experts),
                                                  .y_stride = experts.stride()},
                                       .rows = {.add = {.rows = rows,
                                                        .width = width,
                                                        .a = a.device(),
                                                        .a_stride = a.stride(),
                                                        .b = experts.device(),
                                                        .b_stride = experts.stride(),
                                                        .out = sum.device(),
                                                        .out_stride = sum.stride()},
                                                .norm = {.size = {rows, 1, width},
                                                         .x = sum.device(),
                                                         .x_stride = sum.stride(),
                                                         .weight = weight.device(),
                                                         .out = out.device(),
                                                         .out_type = DType::bf16,
                                                         .out_stride = out.stride()}}};
            if (rounds)
              call.rows.norm.rounded = {
                  .form = InputForm::numbers, .rounding = rounding, .data = rounded.device()};
            ASSERT_TRUE(device_table().takes_shared(call));
            if (together) {
              device_table().add_shared_and_norm(call, default_stream());
            } else {
              device_table().add_scaled(call.shared, default_stream());
              device_table().add_and_norm(call.rows, default_stream());
            }
            finish();
            ASSERT_TRUE(launches().ok());
            read[together] = {sum.read_device(), out.read_device(), rounded.read_device()};
          }
          EXPECT_TRUE(read[1][0] == read[0][0]) << "sums";
          EXPECT_TRUE(read[1][1] == read[0][1]) << "norms";
          EXPECT_TRUE(read[1][2] == read[0][2]) << "rounded rows";
        }
      }
    }
  }
}

}  // namespace
}  // namespace motley::gpu_tests
