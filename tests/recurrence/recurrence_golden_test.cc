// Recurrent layers against the plain paths of transformers (tools/make_recurrence_goldens.py).

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/json/json.h"
#include "base/system/files.h"
#include "kernels/cpu/recurrence.h"

namespace motley::kernels::cpu {
namespace {

// Numbers of a layer's rows, or of its weights.
std::vector<float> numbers_of(const json::Object& layer, std::string_view key) {
  std::vector<float> numbers;
  const json::Value* const rows = layer.find(key);
  if (rows == nullptr) return numbers;
  const auto add = [&](const json::Value& number) {
    numbers.push_back(static_cast<float>(number.as_number("number").value()));
  };
  for (const json::Value& row : *rows->if_array()) {
    if (row.if_array() == nullptr) {
      add(row);
    } else {
      for (const json::Value& number : *row.if_array()) add(number);
    }
  }
  return numbers;
}

std::map<std::string, json::Object> layers() {
  const std::string text = read_text(MOTLEY_RECURRENCE, std::size_t{1} << 24).value();
  std::map<std::string, json::Object> all;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t end = rest.find('\n');
    const json::Value line = json::parse(rest.substr(0, end), "a golden layer").value();
    const json::Object& layer = *line.if_object();
    all.emplace(*layer.find("name")->if_string(), layer);
    rest.remove_prefix(end + 1);
  }
  return all;
}

// One sequence in slot 0, in steps of so many rows.
class OneSequence {
 public:
  OneSequence(std::int64_t rows, std::int64_t rows_a_step)
      : rows_(rows), rows_a_step_(rows_a_step) {}

  void each_step(FunctionRef<void(const StateSteps& steps, std::int64_t first)> body) const {
    std::int32_t anchor = 0;
    for (std::int64_t first = 0; first < rows_; first += rows_a_step_) {
      const std::int64_t count = std::min(rows_a_step_, rows_ - first);
      std::vector<std::int32_t> positions;
      for (std::int64_t i = 0; i < count; ++i)
        positions.push_back(static_cast<std::int32_t>(first + i));
      const std::int32_t begin[] = {0, static_cast<std::int32_t>(count)};
      const std::int32_t slot = 0;
      const auto certain = static_cast<std::int32_t>(count);
      body({.rows = {.count = 1, .seq_begin = begin, .positions = positions.data(), .rows = count},
            .slots = &slot,
            .anchors = &anchor,
            .certain = &certain},
           first);
      anchor = static_cast<std::int32_t>(anchor_after(first, count));
    }
  }

 private:
  std::int64_t rows_;
  std::int64_t rows_a_step_;
};

void expect_near(const std::vector<float>& got, const std::vector<float>& expected,
                 std::string_view name) {
  ASSERT_EQ(got.size(), expected.size());
  float largest = 0;
  for (const float number : expected) largest = std::max(largest, std::abs(number));
  // Both are in float32 with sums in orders of their own: as far apart as transformers' two forms.
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], expected[i], 1e-6F * largest) << name << ", number " << i;
}

class RecurrenceGoldens : public testing::TestWithParam<std::int64_t> {};  // rows a step
INSTANTIATE_TEST_SUITE_P(RowsAStep, RecurrenceGoldens, testing::Values(1, 5, 64));

TEST_P(RecurrenceGoldens, MixersAgreeWithTransformers) {
  const auto all = layers();
  for (const char* const name : {"delta_net", "vector_decay", "state_space"}) {
    const json::Object& layer = all.at(name);
    const auto rows = static_cast<std::int64_t>(layer.find("out")->if_array()->size());
    const std::vector<float> q = numbers_of(layer, "q");
    const std::vector<float> k = numbers_of(layer, "k");
    const std::vector<float> v = numbers_of(layer, "v");
    const std::vector<float> g = numbers_of(layer, "g");
    const std::vector<float> beta = numbers_of(layer, "beta");
    const auto width = [&](const std::vector<float>& numbers) {
      return static_cast<std::int64_t>(numbers.size()) / rows;
    };
    const auto heads = [&](std::string_view key) {
      return static_cast<std::int64_t>(layer.find(key)->as_number("heads").value());
    };
    std::vector<float> out(v.size());
    Recur recurrence{.key_heads = heads("key_heads"), .value_heads = heads("value_heads")};
    recurrence.key_width = width(k) / recurrence.key_heads;
    recurrence.value_width = width(v) / recurrence.value_heads;
    recurrence.decay_by_key = width(g) > recurrence.value_heads;
    const auto memory = [](std::int64_t numbers) {
      return std::vector<float>(static_cast<std::size_t>(numbers), std::nanf(""));
    };
    std::vector<float> anchors =
        memory(recurrence.value_heads * recurrence.key_width * recurrence.value_width);
    std::vector<float> keys = memory(state_log_rows * width(k));
    std::vector<float> updates = memory(state_log_rows * width(v));
    std::vector<float> decays = memory(state_log_rows * width(g));
    recurrence.memory = {.anchors = anchors.data(),
                         .keys = keys.data(),
                         .updates = updates.data(),
                         .decays = decays.data()};
    const auto row_of = [&](const std::vector<float>& numbers, std::int64_t row) {
      return numbers.empty() ? nullptr : numbers.data() + row * width(numbers);
    };
    OneSequence(rows, GetParam()).each_step([&](const StateSteps& steps, std::int64_t first) {
      Recur step = recurrence;
      step.q = row_of(q, first);
      step.q_stride = width(q);
      step.k = row_of(k, first);
      step.k_stride = width(k);
      step.v = row_of(v, first);
      step.v_stride = width(v);
      step.g = row_of(g, first);
      step.g_stride = width(g);
      step.beta = row_of(beta, first);
      step.beta_stride = width(beta);
      step.out = out.data() + first * width(v);
      step.out_stride = width(v);
      step.steps = steps;
      recur(step, {}, current_instruction_set());
    });
    expect_near(out, numbers_of(layer, "out"), name);
  }
}

TEST_P(RecurrenceGoldens, ConvolutionsAgreeWithTransformers) {
  const json::Object layer = layers().at("convolution");
  const auto rows = static_cast<std::int64_t>(layer.find("out")->if_array()->size());
  const std::vector<float> x = numbers_of(layer, "x");
  const std::vector<float> weight = numbers_of(layer, "weight");
  const std::vector<float> bias = numbers_of(layer, "bias");
  const auto channels = static_cast<std::int64_t>(bias.size());
  std::vector<float> inputs(static_cast<std::size_t>(convolution_log_rows * channels),
                            std::nanf(""));
  std::vector<float> history(weight.size(), std::nanf(""));
  std::vector<float> out(x.size());
  OneSequence(rows, GetParam()).each_step([&](const StateSteps& steps, std::int64_t first) {
    convolve({.channels = channels,
              .taps = static_cast<std::int64_t>(weight.size()) / channels,
              .weight = weight.data(),
              .bias = bias.data(),
              .silu = true,
              .x = x.data() + first * channels,
              .x_stride = channels,
              .out = out.data() + first * channels,
              .out_stride = channels,
              .steps = steps,
              .memory = {.inputs = inputs.data(), .history = history.data()}},
             {}, current_instruction_set());
  });
  expect_near(out, numbers_of(layer, "out"), "convolution");
}

}  // namespace
}  // namespace motley::kernels::cpu
