// Grouped attention's block on a GPU in bf16, with all that layers may differ in, against its
// definition in float64.

#include <array>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "gpu/device_kernels.h"
#include "gpu/device_memory.h"
#include "lora/apply/step_table.h"
#include "model/forward/forward.h"
#include "model/test_grouped_attention.h"
#include "quant/upload.h"

namespace motley::gpu_tests {
namespace {

using model::GroupedAttention;
using model::page_tokens;
using model::test::attention_layer;
using model::test::GroupedCase;
using model::test::Row;
using tensor::Tensor;

constexpr tensor::DeviceId on_gpu{.kind = tensor::DeviceKind::cuda};
constexpr std::int64_t tokens = 100;  // of a sequence
constexpr std::int64_t pages_each = (tokens + page_tokens - 1) / page_tokens;
constexpr std::size_t sequence_count = 3;
constexpr std::int64_t pages = sequence_count * pages_each + 1;

template <class T>
Tensor there(const DeviceArray<T>& array, const tensor::Shape& shape) {
  return {reinterpret_cast<std::byte*>(array.data()), tensor::dtype_of<T>, shape, on_gpu};
}

// A block's weights in bf16 on the GPU.
void copy_block(const GroupedAttention& from, tensor::Device& gpu, quant::Uploader& uploader,
                GroupedAttention& to) {
  to.sizes = from.sizes;
  to.heads = from.heads;
  to.kv_heads = from.kv_heads;
  const auto map = [&](const model::Linear& host, model::Linear& device) {
    if (host.weight.view().data == nullptr) return;
    device.site = host.site;
    device.weight = quant::upload_decoded(host.weight, DType::bf16, uploader).value();
  };
  const auto vector = [&](const model::Vector& host, model::Vector& device) {
    if (host.empty()) return;
    device = model::Vector::create(std::span(host.data(), std::size_t(host.size())), gpu, &uploader)
                 .value();
  };
  map(from.q, to.q);
  map(from.k, to.k);
  map(from.v, to.v);
  map(from.o, to.o);
  vector(from.q_norm.weight, to.q_norm.weight);
  vector(from.k_norm.weight, to.k_norm.weight);
  vector(from.v_norm.weight, to.v_norm.weight);
  vector(from.sinks, to.sinks);
}

GroupedCase wide(GroupedCase made) {
  made.hidden = 256;
  made.name = cat(made.name, "_", made.sizes.head_dim);
  return made;
}

// A width that only the plain kernel takes, and those that the tensor cores take.
std::vector<GroupedCase> cases() {
  std::vector<GroupedCase> all;
  for (const std::int64_t width : {96, 128, 256, 512})
    for (const GroupedCase& each : model::test::grouped_cases(width)) all.push_back(wide(each));
  return all;
}

class GpuGroupedAttention : public testing::TestWithParam<GroupedCase> {
 protected:
  GpuGroupedAttention() {
    copy_block(host.block, *gpu, *uploader, device);
    if (GetParam().sizes.rope.dims > 0)
      rope = model::RopeTable::create(GetParam().sizes.rope, *gpu, uploader.get()).value();
    uploader->finish().value();
    const lora::Handle handle = pool->load("adapter", adapter).value();
    mixes[1] = lora::Mix::make(std::array{lora::Mix::Part{handle, 1.5F}}).value();
    for (std::vector<Row>& x : xs) {
      for (std::int64_t t = 0; t < tokens; ++t) {
        Row row;
        for (const float number : lora::test::random_numbers(random, GetParam().hidden))
          row.push_back(double{bf16::from(number).to_float()});
        x.push_back(std::move(row));
      }
    }
  }

  struct Piece {
    std::size_t sequence;
    std::int64_t begin, end;
  };
  struct Laid {
    std::vector<bf16> x;
    std::vector<std::int32_t> positions, seq_begin{0}, table;
    std::vector<lora::Mix> mixes;
    std::int64_t most = 0, least = tokens;
  };
  Laid lay_out(const std::vector<Piece>& pieces) const {
    Laid laid;
    for (const auto& [sequence, begin, end] : pieces) {
      for (std::int64_t position = begin; position < end; ++position) {
        for (const double number : xs[sequence][static_cast<std::size_t>(position)])
          laid.x.push_back(bf16::from(static_cast<float>(number)));
        laid.positions.push_back(static_cast<std::int32_t>(position));
        laid.mixes.push_back(mixes[sequence]);
      }
      laid.seq_begin.push_back(static_cast<std::int32_t>(laid.positions.size()));
      for (std::int64_t page = 0; page < pages_each; ++page)
        laid.table.push_back(static_cast<std::int32_t>(
            pages - 1 - page * std::int64_t{sequence_count} - static_cast<std::int64_t>(sequence)));
      laid.most = std::max(laid.most, end - begin);
      laid.least = std::min(laid.least, end - begin);
    }
    return laid;
  }

  std::vector<float> run(const std::vector<Piece>& pieces, bool fuses) {
    const Laid laid = lay_out(pieces);
    const GroupedConfig& sizes = GetParam().sizes;
    const std::int64_t hidden = GetParam().hidden;
    const auto rows = std::ssize(laid.positions);
    lora::Batch adapters;
    adapters.build(laid.mixes);
    step_table->upload(adapters, *stream).value();
    const ops::Context context{
        .kernels = &device_table(), .stream = device_table().on(stream->handle()), .exact = false};
    const DeviceArray<bf16> x(laid.x);
    const DeviceArray<std::int32_t> positions(laid.positions);
    const DeviceArray<std::int32_t> seq_begin(laid.seq_begin);
    const DeviceArray<std::int32_t> table(laid.table);
    const DeviceArray<float> out(static_cast<std::size_t>(rows * hidden));
    std::vector<model::LayerPages> layers(attention_layer + 1);
    const tensor::Shape shape{pages, page_tokens, sizes.kv_heads, sizes.head_dim};
    layers[attention_layer] = {there(keys, shape)};
    if (sizes.values != model::Values::keys)
      layers[attention_layer].emplace_back(there(values, shape));
    const model::Batch batch{.count = rows,
                             .rows = {.sequences = std::ssize(pieces),
                                      .seq_begin = seq_begin.data(),
                                      .positions = positions.data(),
                                      .block_table = there(table, {std::ssize(pieces), pages_each}),
                                      .max_rows = laid.most,
                                      .least_rows = laid.least,
                                      .max_positions = tokens},
                             .pages = layers,
                             .mixes = {.batch = adapters.empty() ? nullptr : &adapters,
                                       .labels = step_table->labels(),
                                       .table = step_table.get()}};
    ops::OpList list;
    model::Builder pass(list, context, {.activations = DType::bf16, .kv = DType::bf16});
    if (rope.spec.dims > 0) pass.add_rope_table(rope);
    const ops::ValueId in = pass.value("x", DType::bf16, hidden);
    list.set_external(in, 0);
    list.set_external(device.append(in, pass), 1);
    model::Forward forward(list, {.bounds = {rows, 0}, .fuses = fuses});
    const tensor::Buffer memory = gpu->allocate(forward.bytes()).value();
    forward.run({.batch = batch,
                 .context = context,
                 .experts = {},
                 .memory = memory,
                 .externals = std::array{there(x, {rows, hidden}), there(out, {rows, hidden})}});
    stream->synchronize().value();
    launches().value();
    return out.read();
  }

  using GroupedConfig = model::GroupedConfig;
  std::mt19937 random{41};
  std::unique_ptr<tensor::Device> gpu =
      tensor::open_device({.kind = tensor::DeviceChoice::Kind::cuda}).value();
  std::unique_ptr<tensor::Stream> stream = gpu->create_stream().value();
  std::unique_ptr<quant::Uploader> uploader = quant::Uploader::create(*gpu).value();
  model::test::RandomGroupedAttention host{random, GetParam()};
  GroupedAttention device;
  model::RopeTable rope;
  lora::Adapter adapter = model::test::adapter_of_all(random, host.block);
  std::unique_ptr<lora::Pool> pool = lora::Pool::create(*gpu, {.bytes = std::uint64_t{16} << 20,
                                                               .page_bytes = 4096,
                                                               .dtype = DType::bf16,
                                                               .directory = true,
                                                               .poison = true})
                                         .value();
  std::unique_ptr<lora::StepTable> step_table =
      lora::StepTable::create(*gpu, *pool, {.rows = 1024, .labels = 8, .terms = 16}).value();
  std::array<std::vector<Row>, sequence_count> xs;
  std::array<lora::Mix, sequence_count> mixes;  // the second one's is an adapter
  DeviceArray<bf16> keys{static_cast<std::size_t>(pages * page_tokens * GetParam().sizes.kv_heads *
                                                  GetParam().sizes.head_dim)};
  DeviceArray<bf16> values{keys.size()};
};

// Prompts; then pieces after what is cached, with rows that decode between them.
TEST_P(GpuGroupedAttention, EqualsTheDefinition) {
  std::array<std::vector<Row>, sequence_count> wanted;
  for (std::size_t s = 0; s < sequence_count; ++s)
    wanted[s] = model::test::by_definition(
        host.block, {.adapter = s == 1 ? &adapter : nullptr, .scale = 1.5F}, xs[s]);
  const std::vector<std::vector<Piece>> steps = {{{0, 0, 70}, {1, 0, 33}, {2, 0, 1}},
                                                 {{2, 1, 2}, {0, 70, 71}, {1, 33, 34}},
                                                 {{0, 71, 72}, {2, 2, 100}, {1, 34, 80}}};
  for (const bool fuses : {true, false}) {
    double worst = 0;
    for (const std::vector<Piece>& pieces : steps) {
      const std::vector<float> got = run(pieces, fuses);
      auto at = got.begin();
      for (const auto& [sequence, begin, end] : pieces) {
        for (std::int64_t position = begin; position < end; ++position) {
          double apart = 0;
          double all = 0;
          for (const double number : wanted[sequence][static_cast<std::size_t>(position)]) {
            apart += std::pow(double{*at++} - number, 2);
            all += std::pow(number, 2);
          }
          const double error = std::sqrt(apart / all);
          worst = error <= worst ? worst : std::isnan(error) ? INFINITY : error;
        }
      }
    }
    // x and weights are bf16's; queries, keys, values, softmax weights and what goes into o are
    // rounded to it, each by 2^-9 at most, and scores of a size of some units pass that on.
    EXPECT_LE(worst, 2e-2) << (fuses ? "fused" : "op by op");
  }
}

INSTANTIATE_TEST_SUITE_P(Layers, GpuGroupedAttention, testing::ValuesIn(cases()),
                         [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace motley::gpu_tests
