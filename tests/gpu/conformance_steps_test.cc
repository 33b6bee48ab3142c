#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "lora/apply/step_table.h"
#include "moe/conformance/adapters.h"
#include "moe/conformance/runner.h"
#include "tensor/device/cpu_device.h"

// Steps of several layers on a GPU: one captured graph serves any rows, routes and adapters.
namespace motley::moe::conformance {
namespace {

constexpr std::int64_t tokens = 24;
// Adapters have nothing on layer 1.
constexpr std::int32_t layer_numbers[] = {0, 1, 0};

struct Case {
  const Backend* backend;
  quant::Format format;
  bool exact;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto& [backend, format] : backends_and_formats()) {
    for (const bool exact : {false, true}) {
      Problem problem{.gate_up = format,
                      .down = format,
                      .hidden = 136,
                      .intermediate = 72,
                      .experts = 5,
                      .top_k = 3,
                      .lora = true,
                      .factors = exact ? DType::f32 : DType::bf16,
                      .exact = exact,
                      .device = device_kind()};
      if (backend->supports(problem)) all.push_back({backend, format, exact});
    }
  }
  return all;
}

class ConformanceSteps : public testing::TestWithParam<Case> {
 protected:
  ConformanceSteps()
      : backend_(*GetParam().backend),
        spec_{.gate_up = GetParam().format,
              .down = GetParam().format,
              .hidden = 136,
              .intermediate = 72,
              .experts = 5,
              .top_k = 3},
        x_(take(x_type(), {tokens, spec_.hidden})),
        ids_(take(DType::i32, {tokens, spec_.top_k})),
        weights_(take(DType::f32, {tokens, spec_.top_k})),
        adapters_(spec_, exact() ? DType::f32 : DType::bf16, backend_.factor_layout()),
        stream_(device().create_stream().value()),
        table_(lora::StepTable::create(device(), adapters_.pool(),
                                       {.rows = tokens, .labels = delta_limits.labels, .terms = 48})
                   .value()) {
    const auto uploader = quant::Uploader::create(device()).value();
    for (unsigned seed = 1; seed <= std::size(layer_numbers); ++seed) {
      layers_.push_back(std::make_unique<Layer>(make_layer(spec_, host_, seed)));
      experts_.push_back(backend_.prepare(layers_.back()->weights, uploader.get()).value());
      outs_.push_back(take(DType::f32, {tokens, spec_.hidden}));
    }
    uploader->finish().value();
    const Problem problem = layers_[0]->problem(exact(), device_kind(), true);
    workspace_ = backend_.make_workspace(problem, tokens, delta_limits, device()).value();
  }

  static bool exact() { return GetParam().exact; }
  static DType x_type() { return exact() ? DType::f32 : DType::bf16; }

  // The rows of the next step, and its adapters.
  void lay_out(unsigned seed) {
    const Rows rows = make_rows(spec_, tokens, Routes::strange, seed);
    std::vector<bf16> rounded;
    for (const float number : rows.x) rounded.push_back(bf16::from(number));
    const void* const x = exact() ? static_cast<const void*>(rows.x.data()) : rounded.data();
    stream_->copy(x_.bytes(), x, static_cast<std::size_t>(x_.byte_count())).value();
    stream_->copy(ids_.bytes(), rows.ids.data(), rows.ids.size() * sizeof(rows.ids[0])).value();
    stream_
        ->copy(weights_.bytes(), rows.routing_weights.data(),
               rows.routing_weights.size() * sizeof(float))
        .value();
    std::vector<lora::Mix> mixes;
    for (const Choices& choices : assign_choices(tokens, seed))
      mixes.push_back(adapters_.mix(choices));
    batch_.build(mixes);
    table_->upload(batch_, *stream_).value();
    stream_->synchronize().value();
  }

  Result<void> step(bool adapted) {
    const ops::Context context{.kernels = &device_kernels(),
                               .stream = device_kernels().on(stream_->handle()),
                               .exact = exact()};
    workspace_->begin_step(tokens, adapted ? table_->labels() : nullptr, context.stream);
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const lora::ExpertDeltas deltas{
          .batch = &batch_, .layer = layer_numbers[i], .table = table_.get()};
      moe::run_experts(backend_, {.experts = *experts_[i],
                                  .x = x_,
                                  .ids = ids_,
                                  .routing_weights = weights_,
                                  .deltas = adapted ? &deltas : nullptr,
                                  .out = outs_[i],
                                  .workspace = *workspace_,
                                  .context = context});
    }
    return kernels::cuda_launches(device_kernels());
  }

  // What all layers gave, which is NaN again behind it.
  std::vector<float> take_outputs() {
    std::vector<float> all;
    for (const tensor::Tensor& out : outs_) {
      std::vector<float> numbers(static_cast<std::size_t>(out.elements()));
      stream_->copy(numbers.data(), out.bytes(), numbers.size() * sizeof(float)).value();
      stream_->fill(out.bytes(), std::byte{0xFF}, numbers.size() * sizeof(float)).value();
      stream_->synchronize().value();
      all.insert(all.end(), numbers.begin(), numbers.end());
    }
    return all;
  }

  static std::vector<std::int64_t> rows_of(const std::vector<float>& outputs, std::int64_t hidden) {
    std::vector<std::int64_t> rows(outputs.size() / static_cast<std::size_t>(hidden));
    std::iota(rows.begin(), rows.end(), 0);
    return rows;
  }

  tensor::Tensor take(DType dtype, const tensor::Shape& shape) {
    memory_.push_back(
        device().allocate(static_cast<std::size_t>(*bytes_of(dtype, shape.elements()))).value());
    return memory_.back().view(dtype, shape);
  }

  const Backend& backend_;
  LayerSpec spec_;
  tensor::CpuDevice host_{{.threads = 1}};
  std::vector<tensor::Buffer> memory_;
  tensor::Tensor x_, ids_, weights_;
  Adapters adapters_;
  std::unique_ptr<tensor::Stream> stream_;
  std::unique_ptr<lora::StepTable> table_;
  lora::Batch batch_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<std::unique_ptr<PreparedExperts>> experts_;
  std::vector<tensor::Tensor> outs_;
  std::unique_ptr<Workspace> workspace_;
};

TEST_P(ConformanceSteps, AGraphServesAnyRowsRoutesAndAdapters) {
  for (const bool adapted : {false, true}) {
    lay_out(1);
    step(adapted).value();
    const auto graph = stream_->capture([&] { return step(adapted); }).value();
    for (unsigned seed = 2; seed < 6; ++seed) {
      lay_out(seed);
      take_outputs();
      step(adapted).value();
      const std::vector<float> eager = take_outputs();
      // Twice, for a step must leave nothing behind.
      for (int launch = 0; launch < 2; ++launch) {
        graph->launch(*stream_).value();
        EXPECT_EQ(compare_bits(take_outputs(), eager, rows_of(eager, spec_.hidden), spec_.hidden),
                  "")
            << "rows " << seed << ", launch " << launch << ", adapted " << adapted;
      }
    }
  }
}

TEST_P(ConformanceSteps, ALayerThatAdaptersDoNotReachGivesTheBase) {
  lay_out(7);
  take_outputs();
  step(false).value();
  const std::vector<float> base = take_outputs();
  step(true).value();
  const std::vector<float> adapted = take_outputs();
  const auto layer = [&](const std::vector<float>& all, std::size_t index) {
    const std::size_t length = all.size() / std::size(layer_numbers);
    return std::vector<float>(all.begin() + static_cast<std::ptrdiff_t>(index * length),
                              all.begin() + static_cast<std::ptrdiff_t>((index + 1) * length));
  };
  for (std::size_t index = 0; index < std::size(layer_numbers); ++index) {
    const std::vector<float> expected = layer(base, index);
    const std::string difference = compare_bits(layer(adapted, index), expected,
                                                rows_of(expected, spec_.hidden), spec_.hidden);
    EXPECT_EQ(difference.empty(), layer_numbers[index] != 0) << "layer " << index << difference;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, ConformanceSteps, testing::ValuesIn(cases()),
                         [](const auto& test) {
                           return cat(test.param.backend->name(), "_",
                                      identifier(test.param.format),
                                      test.param.exact ? "_exact" : "_bf16_compute");
                         });

}  // namespace
}  // namespace motley::moe::conformance
