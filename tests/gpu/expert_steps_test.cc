#include <algorithm>
#include <atomic>
#include <bit>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "gpu/device_kernels.h"
#include "gpu/grouped_runner.h"
#include "plan/plan.h"

// Steps from one captured graph, with other routing, adapters and pages each time, while adapters
// are loaded and evicted under them. A row's bits depend on its own inputs and mix only, so each
// must be, bit for bit, what the row had in one eager batch of all rows with all mixes.
namespace motley::gpu_tests {
namespace {

using kernels::cuda::GroupedExperts;
using lora::Batch;
using lora::Handle;
using lora::Mix;
using lora::Pool;
using lora::StepTable;

constexpr int adapter_count = 10;
constexpr int step_rows = 8;
constexpr int inputs = 4;  // sets of rows that steps take turns with
constexpr lora::PageFormat format{.dtype = DType::bf16, .experts = lora::Layout::packed};

const WorldShape shape{.experts = 6, .hidden = 96, .intermediate = 48};

// What a row may ask for: nothing, one adapter, or two.
WorldMixes all_mixes() {
  WorldMixes mixes;
  for (int i = 0; i < adapter_count; ++i) mixes.push_back({{i, 1.0F}});
  for (int i = 0; i < adapter_count; ++i)
    for (int j = i + 1; j < adapter_count; ++j) mixes.push_back({{i, 0.5F}, {j, -1.0F}});
  return mixes;
}

// Rows [input][row] with the base and every mix: [mix + 1][input][row][H].
std::vector<float> all_answers(const WorldLayer& layer, const PackedLayer& packed_layer,
                               const std::vector<WorldAdapter>& adapters, const WorldMixes& mixes,
                               const WorldRows& rows) {
  const AdapterPages pages(shape, adapters, mixes, format);
  std::vector<float> answers;
  for (std::int32_t mix = -1; mix < std::int32_t(mixes.size()); ++mix) {
    WorldRows labelled = rows;
    labelled.labels.assign(std::size_t(rows.tokens), mix);
    const auto got = GroupedBatch(layer, packed_layer, labelled, &pages).run();
    answers.insert(answers.end(), got.begin(), got.end());
  }
  return answers;
}

// All inputs on the device, and those of a step at addresses that stay.
class StepInputs {
 public:
  explicit StepInputs(const WorldRows& rows)
      : x_(bytes_of_bf16(rows.x)),
        ids_(rows.ids),
        weights_(rows.weights),
        x(x_.size() / inputs),
        ids(ids_.size() / inputs),
        weights(weights_.size() / inputs) {}

  Result<void> upload(std::size_t input, tensor::Stream& stream) const {
    MOTLEY_TRY_VOID(stream.copy(x.data(), x_.data() + input * x.size(), x.size()));
    MOTLEY_TRY_VOID(stream.copy(ids.data(), ids_.data() + input * ids.size(), ids.size() * 4));
    return stream.copy(weights.data(), weights_.data() + input * weights.size(),
                       weights.size() * 4);
  }

 private:
  DeviceArray<std::uint8_t> x_;
  DeviceArray<std::int32_t> ids_;
  DeviceArray<float> weights_;

 public:
  DeviceArray<std::uint8_t> x;
  DeviceArray<std::int32_t> ids;
  DeviceArray<float> weights;
};

// A pool for about half of the adapters.
Pool::Options half_of(const std::vector<lora::Adapter>& adapters) {
  Pool::Options options{.page_bytes = 16 << 10,
                        .dtype = format.dtype,
                        .experts = format.experts,
                        .directory = true,
                        .poison = true,
                        .staging = {.piece_bytes = 64 << 10, .pieces = 3}};
  std::uint64_t pages = 0;
  for (const auto& adapter : adapters) pages += Pool::pages_of(adapter, options);
  options.bytes = pages / 2 * options.page_bytes;
  return options;
}

// Returns how many loads failed for lack of anything but memory.
int load_until(const std::atomic<bool>& done, Pool& pool,
               const std::vector<lora::Adapter>& adapters, unsigned seed) {
  std::mt19937 random(seed);
  int failed = 0;
  while (!done) {
    const std::size_t at = random() % adapter_count;
    const auto loaded = pool.load(cat("adapter-", at), adapters[at]);
    if (!loaded.ok() && loaded.error().code() != ErrorCode::out_of_memory &&
        loaded.error().code() != ErrorCode::busy)
      ++failed;
  }
  return failed;
}

struct HeldAdapter {
  int number;
  Handle handle;
};
std::vector<HeldAdapter> acquire_some(Pool& pool, std::mt19937& random) {
  std::vector<HeldAdapter> held;
  for (int i = 0; i < 3; ++i) {
    const int at = int(random() % adapter_count);
    auto handle = pool.acquire(cat("adapter-", at));
    if (handle.ok()) held.push_back({at, *std::move(handle)});
  }
  return held;
}

struct NumberedMix {
  Mix mix;
  std::size_t number = 0;  // 0: the base; else the place in `mixes` + 1
};
NumberedMix random_mix(const std::vector<HeldAdapter>& held, const WorldMixes& mixes,
                       std::mt19937& random) {
  if (held.empty() || random() % 4 == 0) return {};
  const auto& [one, handle] = held[random() % held.size()];
  const auto& [other, second] = held[random() % held.size()];
  const bool both = one < other && random() % 2 == 0;
  const auto want = both ? std::vector<WorldTerm>{{one, 0.5F}, {other, -1.0F}}
                         : std::vector<WorldTerm>{{one, 1.0F}};
  std::vector<Mix::Part> parts{{handle, want[0].scale}};
  if (both) parts.push_back({second, want[1].scale});
  const auto same = [&](const std::vector<WorldTerm>& terms) {
    return std::ranges::equal(terms, want, {}, &WorldTerm::adapter, &WorldTerm::adapter);
  };
  return {Mix::make(parts).value(),
          1 + std::size_t(std::ranges::find_if(mixes, same) - mixes.begin())};
}

// Rows whose bits are not those of their answer. `wanted`: a row's place in `answers`, in numbers.
std::size_t count_wrong(const tensor::Buffer& got, const std::vector<float>& answers,
                        const std::vector<std::size_t>& wanted) {
  const auto* const rows_got = reinterpret_cast<const std::uint32_t*>(got.data());
  const std::size_t width = std::size_t(shape.hidden);
  std::size_t wrong = 0;
  for (std::size_t row = 0; row < wanted.size(); ++row) {
    const std::span want(answers.data() + wanted[row], width);
    const auto bits = [](float value) { return std::bit_cast<std::uint32_t>(value); };
    if (!std::ranges::equal(std::span(rows_got + row * width, width), want, {}, {}, bits)) ++wrong;
  }
  return wrong;
}

GroupedExperts params_of(const PackedLayer& layer, const StepInputs& step_inputs,
                         const StepTable& table, const DeviceArray<std::int32_t>& by_label) {
  GroupedExperts params;
  params.shape = layer.shape;
  params.experts_per_token = shape.experts_per_token;
  params.tokens = step_rows;
  params.max_tokens = step_rows;
  params.weights = layer.experts;
  params.x = step_inputs.x.data();
  params.ids = step_inputs.ids.data();
  params.routing_weights = step_inputs.weights.data();
  params.deltas = {.labels = table.labels(),
                   .tokens_by_label = by_label.data(),
                   .term_begin = table.term_begin(),
                   .terms = table.terms(),
                   .layer = adapted_layer,
                   .max_terms = 2,
                   .max_gate_up_rank = 2 * 112,
                   .max_down_rank = 2 * 64};
  return params;
}

Result<void> run_layer(const GroupedExperts& params, const DeviceArray<std::int32_t>& by_label,
                       const tensor::Stream& stream) {
  using namespace kernels::cuda;  // NOLINT(google-build-using-namespace)
  const StreamHandle on = device_table().on(stream.handle());
  prepare_grouped_scratch(params, on);
  sort_tokens_by_label(params.deltas.labels, step_rows, step_rows, by_label.data(), on);
  run_grouped_experts(params, choose_grouped_tiles(params), on);
  return launches();
}

TEST(GroupedExperts, AnswersStayRightWhileAdaptersComeAndGo) {
  constexpr int steps = 10'000;
  const WorldLayer layer = make_layer(shape, 11);
  const PackedLayer packed_layer(layer);
  std::vector<WorldAdapter> adapters;
  std::vector<lora::Adapter> canonical;
  for (int i = 0; i < adapter_count; ++i) {
    adapters.push_back(make_adapter(shape, {.rank = 3 + 5 * i, .holes = i % 3 == 0}, unsigned(i)));
    canonical.push_back(to_adapter(shape, adapters.back()));
  }
  const WorldMixes mixes = all_mixes();
  const WorldRows rows =
      make_rows(shape, std::int64_t{inputs} * step_rows, WorldRoutes::strange, 0, 12);
  const std::vector<float> answers = all_answers(layer, packed_layer, adapters, mixes, rows);

  const auto stream = test_device().create_stream().value();
  const auto pool = Pool::create(test_device(), half_of(canonical)).value();
  const auto table =
      StepTable::create(test_device(), *pool, {.rows = step_rows, .labels = step_rows, .terms = 16})
          .value();
  const StepInputs step_inputs(rows);
  const DeviceArray<std::int32_t> by_label(step_rows);
  const std::size_t numbers = std::size_t(step_rows) * std::size_t(shape.hidden);
  const DeviceArray<float> out(numbers);
  GroupedExperts params = params_of(packed_layer, step_inputs, *table, by_label);
  const DeviceArray<std::uint8_t> scratch(grouped_scratch_bytes(params));
  params.scratch = scratch.data();
  params.out = out.data();
  const auto graph = stream->capture([&] { return run_layer(params, by_label, *stream); }).value();
  const tensor::Buffer got =
      test_device().pinned_memory().allocate(steps * numbers * sizeof(float)).value();

  std::atomic<bool> done{false};
  std::atomic<int> failed{0};
  std::vector<std::thread> loaders;
  for (unsigned seed = 0; seed < 2; ++seed)
    loaders.emplace_back([&, seed] { failed += load_until(done, *pool, canonical, seed); });
  std::mt19937 random(3);
  // Of each row: its place in `answers`, in numbers.
  std::vector<std::size_t> wanted;
  std::size_t adapted = 0;
  Batch batch;
  for (int step = 0; step < steps; ++step) {
    const std::vector<HeldAdapter> held = acquire_some(*pool, random);
    const std::size_t input = random() % inputs;
    std::vector<Mix> batch_rows;
    for (std::size_t row = 0; row < step_rows; ++row) {
      const auto [mix, number] = random_mix(held, mixes, random);
      batch_rows.push_back(mix);
      adapted += number > 0 ? 1 : 0;
      wanted.push_back(((number * inputs + input) * step_rows + row) * std::size_t(shape.hidden));
    }
    batch.build(batch_rows);
    ASSERT_TRUE(step_inputs.upload(input, *stream).ok());
    ASSERT_TRUE(table->upload(batch, *stream).ok());
    ASSERT_TRUE(graph->launch(*stream).ok());
    ASSERT_TRUE(stream
                    ->copy(got.data() + std::size_t(step) * numbers * sizeof(float), out.data(),
                           numbers * sizeof(float))
                    .ok());
    batch.clear();  // the requests are gone before their step has run
  }
  done = true;
  for (std::thread& loader : loaders) loader.join();
  ASSERT_TRUE(stream->synchronize().ok());
  EXPECT_EQ(failed, 0);
  EXPECT_GT(pool->usage().evictions, 100U);
  EXPECT_GT(adapted, std::size_t{steps});
  const std::size_t wrong = count_wrong(got, answers, wanted);
  EXPECT_EQ(wrong, 0U) << "of " << wanted.size() << " rows";
}

}  // namespace
}  // namespace motley::gpu_tests
