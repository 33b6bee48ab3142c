#include "kernels/cuda/recurrence/recurrence.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "gpu/device_kernels.h"
#include "gpu/device_memory.h"
#include "kernels/cuda/recurrence/fast.h"
#include "recurrence/machine_cpu.h"

// The GPU's part of the tests in tests/recurrence, and its kernels against the CPU's.
namespace motley::recurrence_tests {
namespace {

class GpuMachine : public Machine {
 public:
  explicit GpuMachine(
      const kernels::RecurrenceTable& kernels = *gpu_tests::device_table().recurrence)
      : kernels_(&kernels) {}
  GpuMachine(const GpuMachine&) = delete;
  GpuMachine& operator=(const GpuMachine&) = delete;
  ~GpuMachine() override {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_TRUE(gpu_tests::launches().ok());
  }

  void* allocate(std::size_t bytes) override {
    arrays_.emplace_back(bytes);
    return arrays_.back().data();
  }
  void copy(void* to, const void* from, std::size_t bytes) override {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  }
  const kernels::RecurrenceTable& kernels() const override { return *kernels_; }
  StreamHandle stream() const override { return gpu_tests::default_stream(); }

 private:
  const kernels::RecurrenceTable* kernels_;
  std::vector<gpu_tests::DeviceArray<std::byte>> arrays_;
};

}  // namespace

std::unique_ptr<Machine> open_machine() { return std::make_unique<GpuMachine>(); }

const std::vector<Form>& forms() {
  static const std::vector<Form> all = {
      {.name = "f32"},
      {.name = "bf16_log", .keys = DType::bf16, .inputs = DType::bf16},
      // A number in two parts of bf16 is off by 2^-18 of itself at most, and a product of two such
      // leaves out as much again: S^T k, the solved updates, their sum and the fold come one after
      // the other, of which the updates' and the sum's have two such factors. That is 11 x 2^-18;
      // exponentials are within 2^-20.
      {.name = "fast",
       .exact = false,
       .keys = DType::bf16,
       .queries = DType::bf16,
       .inputs = DType::bf16,
       .betas = true,
       .error = 4.5e-5}};
  return all;
}

namespace {

void expect_same(const std::vector<float>& got, const std::vector<float>& expected,
                 const std::string& what) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(expected[i])) continue;
    ASSERT_EQ(got[i], expected[i]) << what << ", number " << i;
  }
}

class GpuRecurrence : public testing::TestWithParam<Mixer> {};
INSTANTIATE_TEST_SUITE_P(Mixers, GpuRecurrence, testing::ValuesIn(mixers()),
                         [](const auto& test) { return std::string(test.param.name); });

// Outputs and all that is kept, over steps of any size with sequences that have no rows, drafts,
// and padding.
TEST_P(GpuRecurrence, HasTheCpusBitsInFloat32) {
  const Mixer& mixer = GetParam();
  constexpr std::int64_t length = 120;
  std::vector<InputRows> rows;
  for (std::uint64_t i = 0; i < 3; ++i) rows.push_back(make_rows(mixer, length, 30 + i));
  Slots cpu(mixer, forms().front(), 4, std::make_unique<CpuMachine>());
  Slots gpu(mixer, forms().front(), 4);
  std::vector<Place> places = {{.slot = 2}, {.slot = 0}, {.slot = 3}};
  Numbers numbers(31);
  for (int step = 0; step < 24; ++step) {
    const int most = step % 3 == 0 ? 40 : 8;
    std::vector<Place> again = places;
    std::vector<Piece> pieces;
    std::vector<Piece> pieces_again;
    std::int64_t max_rows = 0;
    for (std::size_t i = 0; i < places.size(); ++i) {
      const auto count = std::min<std::int64_t>(numbers.below(most + 1), length - places[i].length);
      const auto uncertain =
          std::min<std::int64_t>(numbers.below(kernels::max_uncertain_rows + 1), count);
      max_rows = std::max(max_rows, count);
      pieces.push_back({&places[i], &rows[i], count, uncertain});
      pieces_again.push_back({&again[i], &rows[i], count, uncertain});
    }
    const Outputs expected = cpu.step(pieces);
    const Outputs got = gpu.step(
        pieces_again, {.padding = numbers.below(3), .max_rows = step % 2 == 0 ? 0 : max_rows});
    const std::string what = cat("step ", step);
    expect_same(got.mixed, expected.mixed, what + ", mixed");
    expect_same(got.convolved, expected.convolved, what + ", convolved");
    expect_same(gpu.memory(), cpu.memory(), what + ", memory");
    if (HasFatalFailure()) return;
  }
}

// Widths, numbers of heads, taps and rows that no model has.
TEST(GpuRecurrenceShapes, HaveTheCpusBits) {
  Numbers numbers(41);
  for (int round = 0; round < 24; ++round) {
    Mixer mixer{.name = "any"};
    mixer.key_heads = 1 + numbers.below(3);
    mixer.value_heads = mixer.key_heads * (1 + numbers.below(3));
    mixer.key_width = round == 0 ? kernels::max_key_width : 1 + numbers.below(140);
    mixer.value_width = 1 + numbers.below(150);
    mixer.decay_by_key = numbers.below(2) == 0;
    mixer.corrects = numbers.below(3) != 0;
    const std::int64_t length = 1 + numbers.below(60);
    const InputRows rows = make_rows(mixer, length, 50 + static_cast<std::uint64_t>(round));
    Slots cpu(mixer, forms().front(), 1, std::make_unique<CpuMachine>());
    Slots gpu(mixer, forms().front(), 1);
    Place place;
    Place again;
    const Outputs expected = cpu.step({{&place, &rows, length}});
    const Outputs got = gpu.step({{&again, &rows, length}});
    const std::string what = cat(mixer.key_heads, " and ", mixer.value_heads, " heads, widths ",
                                 mixer.key_width, " and ", mixer.value_width, ", rows ", length);
    expect_same(got.mixed, expected.mixed, what);
    expect_same(got.convolved, expected.convolved, what);
    expect_same(gpu.memory(), cpu.memory(), what);
    if (HasFatalFailure()) return;
  }
}

TEST(GpuFastRecurrence, IsChosenByShapeAndComputeMode) {
  const kernels::RecurrenceTable& table = *gpu_tests::device_table().recurrence;
  const auto kept = [&](kernels::RecurrenceShape shape, bool exact) {
    const kernels::KeptTypes types = table.kept_types(shape, exact);
    EXPECT_EQ(types.keys, types.betas ? DType::bf16 : DType::f32);
    EXPECT_EQ(types.inputs, exact ? DType::f32 : DType::bf16);
    return types.betas;
  };
  const kernels::RecurrenceShape shape{
      .key_heads = 16, .value_heads = 32, .key_width = 128, .value_width = 128, .corrects = true};
  EXPECT_TRUE(kept(shape, false));
  EXPECT_FALSE(kept(shape, true));
  kernels::RecurrenceShape other = shape;
  other.decay_by_key = true;
  EXPECT_FALSE(kept(other, false));
  other = shape;
  other.corrects = false;
  EXPECT_FALSE(kept(other, false));
  other = shape;
  other.value_width = 64;
  EXPECT_FALSE(kept(other, false));
  EXPECT_FALSE(kept({}, false));
}

// The forms of launches, as a table. A table's functions have no room for them.
kernels::cuda::FastForms launched;
constexpr kernels::RecurrenceTable of_launched{
    .kept_types = kernels::cuda::kept_types,
    .recur = [](const kernels::Recur& p,
                StreamHandle stream) { kernels::cuda::recur_fast(p, stream, launched); },
    .convolve = kernels::cuda::convolve,
    .gates = kernels::cuda::gates};

// However a head's columns lie on blocks, and whichever kernel goes through a long step: outputs
// and all that is kept, over decoding sequences next to prompts, some without rows, and padding.
TEST(GpuFastRecurrence, EveryFormHasTheSameBits) {
  using kernels::cuda::DecodeForm;
  using kernels::cuda::PromptForm;
  const Form& form = forms().back();
  ASSERT_TRUE(form.betas);
  constexpr std::int64_t length = 130;
  for (const Mixer& mixer : fast_mixers()) {
    std::vector<InputRows> rows;
    for (std::uint64_t i = 0; i < 4; ++i) rows.push_back(make_rows(mixer, length, 70 + i));
    std::vector<std::vector<Outputs>> all;
    std::vector<std::vector<float>> memories;
    for (const auto decode :
         {DecodeForm::helped, DecodeForm::loose, DecodeForm::halves, DecodeForm::whole}) {
      for (const auto prompt : {PromptForm::narrow, PromptForm::wide, PromptForm::as_short}) {
        launched = {.decode = decode, .prompt = prompt};
        Slots slots(mixer, form, 5, std::make_unique<GpuMachine>(of_launched));
        std::vector<Place> places = {{.slot = 3}, {.slot = 0}, {.slot = 4}, {.slot = 1}};
        Numbers numbers(71);
        std::vector<Outputs>& outputs = all.emplace_back();
        for (int step = 0; step < 12; ++step) {
          std::vector<Piece> pieces;
          std::int64_t max_rows = 0;
          for (std::size_t i = 0; i < places.size(); ++i) {
            const int most = step % 3 == 0 && i % 2 == 0 ? 45 : 9;
            const auto count =
                std::min<std::int64_t>(numbers.below(most + 1), length - places[i].length);
            const auto uncertain =
                std::min<std::int64_t>(numbers.below(kernels::max_uncertain_rows + 1), count);
            max_rows = std::max(max_rows, count);
            pieces.push_back({&places[i], &rows[i], count, uncertain});
          }
          outputs.push_back(slots.step(
              pieces, {.padding = numbers.below(3), .max_rows = step % 2 == 0 ? 0 : max_rows}));
        }
        memories.push_back(slots.memory());
      }
    }
    for (std::size_t i = 1; i < all.size(); ++i) {
      const std::string what = cat(mixer.name, ", forms ", i);
      for (std::size_t step = 0; step < all[i].size(); ++step)
        expect_same(all[i][step].mixed, all[0][step].mixed, cat(what, ", step ", step));
      expect_same(memories[i], memories[0], what + ", memory");
      if (HasFatalFailure()) return;
    }
  }
}

TEST(GpuConvolution, TakesAnyNumberOfTapsAndRows) {
  Numbers numbers(61);
  for (std::int64_t taps = 1; taps <= kernels::max_taps; ++taps) {
    for (const std::int64_t count : {1, 2, 7, 33, 1500}) {
      const std::int64_t channels = 300 + taps;
      const std::vector<float> weight = numbers.floats(channels * taps, -1, 1);
      const std::vector<float> x = numbers.floats(count * channels, -1, 1);
      std::vector<float> outs[2];
      std::vector<float> kept[2];
      for (const bool on_gpu : {false, true}) {
        const std::unique_ptr<Machine> m = on_gpu ? open_machine() : std::make_unique<CpuMachine>();
        const std::int32_t begin[] = {0, static_cast<std::int32_t>(count)};
        std::vector<std::int32_t> positions;
        for (std::int32_t i = 0; i < count; ++i) positions.push_back(i);
        const std::int32_t zero[] = {0};
        const std::int32_t certain[] = {static_cast<std::int32_t>(count)};
        const std::int64_t size = (kernels::convolution_log_rows + taps) * channels;
        float* const memory =
            m->place<float>(std::vector<float>(static_cast<std::size_t>(size), poison));
        float* const out = m->place<float>(std::vector<float>(x.size(), poison));
        m->kernels().convolve(
            {.channels = channels,
             .taps = taps,
             .weight = m->place<float>(weight),
             .silu = taps % 2 == 0,
             .x = m->place<float>(x),
             .x_stride = channels,
             .out = out,
             .out_stride = channels,
             .steps = {.rows = {.count = 1,
                                .seq_begin = m->place<std::int32_t>(begin),
                                .positions = m->place<std::int32_t>(positions),
                                .rows = count},
                       .slots = m->place<std::int32_t>(zero),
                       .anchors = m->place<std::int32_t>(zero),
                       .certain = m->place<std::int32_t>(certain)},
             .memory = {.inputs = memory,
                        .history = memory + kernels::convolution_log_rows * channels,
                        .slot_stride = size}},
            m->stream());
        outs[on_gpu].resize(x.size());
        m->copy(outs[on_gpu].data(), out, x.size() * sizeof(float));
        kept[on_gpu].resize(static_cast<std::size_t>(size));
        m->copy(kept[on_gpu].data(), memory, kept[on_gpu].size() * sizeof(float));
      }
      expect_same(outs[1], outs[0], cat(taps, " taps, ", count, " rows"));
      expect_same(kept[1], kept[0], cat(taps, " taps, ", count, " rows, kept"));
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace motley::recurrence_tests
