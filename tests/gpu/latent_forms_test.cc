// Latent attention's block on a GPU in bf16, at the widths that its fast kernels have: absorbed and
// expanded form, mixed in one step, against the absorbed form in float32 on the host
// (model/latent_attention_test.cc holds that to the definition).

#include <algorithm>
#include <array>
#include <cmath>
#include <list>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "gpu/device_kernels.h"
#include "gpu/device_memory.h"
#include "kernels/elementary.h"
#include "lora/apply/step_table.h"
#include "lora/test_world.h"
#include "model/forward/forward.h"
#include "model/latent_attention.h"
#include "ops/rope.h"
#include "quant/upload.h"

namespace motley::gpu_tests {
namespace {

using lora::Projection;
using model::LatentAttention;
using model::StepPart;
using tensor::Tensor;

constexpr tensor::DeviceId on_gpu{.kind = tensor::DeviceKind::cuda};
constexpr std::int32_t layer = 1;
constexpr std::int64_t heads = 4;
constexpr std::int64_t hidden = 256;
constexpr std::int64_t page_tokens = 16;
constexpr model::LatentConfig sizes{
    .heads = heads,
    .q_rank = 0,
    .kv_rank = 512,
    .nope_dim = 128,
    .rope_dim = 64,
    .value_dim = 128,
    .scale = 0.25,  // scores that are far from equal
    .rope = {.pairs = ops::RopeSpec::Pairs::interleaved, .dims = 64, .base = 100.0}};
constexpr std::int64_t latent_width = sizes.kv_rank + sizes.rope_dim;

template <class T>
Tensor there(const DeviceArray<T>& array, const tensor::Shape& shape) {
  return {reinterpret_cast<std::byte*>(array.data()), tensor::dtype_of<T>, shape, on_gpu};
}
Tensor here(std::vector<float>& numbers, const tensor::Shape& shape) {
  return Tensor(reinterpret_cast<std::byte*>(numbers.data()), DType::f32, shape);
}

// The same block in the host's memory in f32, and on the GPU in bf16.
class BothBlocks {
 public:
  BothBlocks(std::mt19937& random, tensor::Device& gpu)
      : uploader_(quant::Uploader::create(gpu).value()) {
    for (LatentAttention* const block : {&host, &device}) {
      block->sizes = sizes;
      block->heads = heads;
    }
    host.q.emplace();
    device.q.emplace();
    make(random, Projection::q, heads * (sizes.nope_dim + sizes.rope_dim), hidden, *host.q,
         *device.q);
    make(random, Projection::kv_a, latent_width, hidden, host.kv_a, device.kv_a);
    make(random, Projection::kv_b, heads * (sizes.nope_dim + sizes.value_dim), sizes.kv_rank,
         host.kv_b, device.kv_b);
    device.kv_b_rounded = std::move(device.kv_b.weight);
    device.kv_b.weight = quant::upload(host.kv_b.weight, *uploader_).value();
    make(random, Projection::o, hidden, heads * sizes.value_dim, host.o, device.o);
    std::vector<float> norm = lora::test::random_numbers(random, sizes.kv_rank);
    for (float& number : norm) number = 1 + number / 4;
    host.kv_a_norm.weight = model::Vector::create(norm, cpu_, nullptr).value();
    device.kv_a_norm.weight = model::Vector::create(norm, gpu, uploader_.get()).value();
    host_rope = model::RopeTable::create(sizes.rope, cpu_, nullptr).value();
    device_rope = model::RopeTable::create(sizes.rope, gpu, uploader_.get()).value();
    uploader_->finish().value();
  }

 private:
  tensor::CpuDevice cpu_{{.threads = 1}};
  std::unique_ptr<quant::Uploader> uploader_;
  std::list<std::vector<float>> weights_;

 public:
  LatentAttention host, device;
  model::RopeTable host_rope, device_rope;

 private:
  void make(std::mt19937& random, Projection projection, std::int64_t out, std::int64_t in,
            model::Linear& on_host, model::Linear& on_device) {
    std::vector<float>& weight =
        weights_.emplace_back(lora::test::random_numbers(random, out * in));
    for (float& number : weight)
      number = bf16::from(number * std::sqrt(3.0F / static_cast<float>(in))).to_float();
    on_host.site = on_device.site = {layer, projection};
    on_host.weight = quant::Weight::borrow(here(weight, {out, in}));
    on_device.weight = quant::upload_decoded(on_host.weight, DType::bf16, *uploader_).value();
  }
};

// A block's ops from x to its result, both external.
class BlockOps {
 public:
  BlockOps(const LatentAttention& block, const model::RopeTable& rope, const ops::Context& context,
           DType activations) {
    model::Builder pass(list_, context, {.activations = activations, .kv = activations});
    pass.add_rope_table(rope);
    const ops::ValueId x = pass.value("x", activations, hidden);
    list_.set_external(x, 0);
    list_.set_external(block.append(x, pass), 1);
  }

  // `out` [rows, hidden] in float32, behind the stream's work.
  void run(const model::Batch& batch, const ops::Context& context, tensor::Device& device,
           const Tensor& x, const Tensor& out) {
    std::int64_t positions = 0;
    for (const StepPart& part : batch.parts) positions += part.positions;
    model::Forward forward(list_, {.bounds = {batch.count, positions + ops::rows_after_positions}});
    memory_ = device.allocate(forward.bytes()).value();
    forward.run({.batch = batch,
                 .context = context,
                 .experts = {},
                 .memory = memory_,
                 .externals = std::array{x, out}});
  }

 private:
  ops::OpList list_;
  tensor::Buffer memory_;
};

// A sequence's rows of one step: tokens [begin, end), who uses what.
struct Piece {
  std::size_t sequence = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

class GpuLatentForms : public testing::Test {
 protected:
  static constexpr std::int64_t tokens = 320;  // of a sequence
  static constexpr std::int64_t sequences = 5;
  static constexpr std::int64_t pages_each = tokens / page_tokens;
  static constexpr std::int64_t pages = sequences * pages_each + 2;

  GpuLatentForms() {
    for (float& number : x) number = bf16::from(number).to_float();
    order.resize(pages);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::shuffle(order, random);
  }

  std::vector<std::int32_t> table_of(const std::vector<Piece>& pieces) const {
    std::vector<std::int32_t> table;
    for (const Piece& piece : pieces) {
      const auto first = order.begin() + static_cast<std::ptrdiff_t>(piece.sequence) * pages_each;
      table.insert(table.end(), first, first + pages_each);
    }
    return table;
  }

  // Runs a step's pieces through either block; `expanded`: pieces in that form, by number.
  struct Expanded {
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };
  struct Laid {
    std::vector<std::int32_t> positions, seq_begin{0}, table, position_begin{0};
    std::vector<float> x;
    std::vector<StepPart> parts;
  };
  Laid lay_out(const std::vector<Piece>& pieces, const Expanded& expanded) const {
    Laid laid{.table = table_of(pieces)};
    for (const Piece& piece : pieces) {
      const auto first =
          x.begin() + (static_cast<std::ptrdiff_t>(piece.sequence) * tokens + piece.begin) * hidden;
      laid.x.insert(laid.x.end(), first, first + (piece.end - piece.begin) * hidden);
      for (std::int64_t p = piece.begin; p < piece.end; ++p)
        laid.positions.push_back(static_cast<std::int32_t>(p));
      laid.seq_begin.push_back(static_cast<std::int32_t>(laid.positions.size()));
    }
    const auto add = [&](std::int64_t begin, std::int64_t end, bool expands) {
      if (begin == end) return;
      StepPart part{.first_sequence = begin,
                    .sequences = end - begin,
                    .first_row = laid.seq_begin[static_cast<std::size_t>(begin)],
                    .least_rows = tokens};
      for (std::int64_t i = begin; i < end; ++i) {
        const Piece& piece = pieces[static_cast<std::size_t>(i)];
        const std::int64_t rows = piece.end - piece.begin;
        part.rows += rows;
        part.max_rows = std::max(part.max_rows, rows);
        part.least_rows = std::min(part.least_rows, rows);
        if (!expands) continue;
        part.form = ops::second_form;
        part.positions += piece.end;
        part.max_positions = std::max(part.max_positions, piece.end);
        laid.position_begin.push_back(static_cast<std::int32_t>(part.positions));
      }
      laid.parts.push_back(part);
    };
    if (expanded.begin == expanded.end) return laid;
    add(0, expanded.begin, false);
    add(expanded.begin, expanded.end, true);
    add(expanded.end, std::ssize(pieces), false);
    return laid;
  }

  std::vector<float> on_host(const std::vector<Piece>& pieces, std::vector<float>& kept,
                             const std::vector<lora::Mix>& mixes) {
    Laid laid = lay_out(pieces, {});
    const auto rows = std::ssize(laid.positions);
    lora::Batch adapters;
    adapters.build(mixes_of_rows(pieces, mixes));
    std::vector<model::LayerPages> layers(layer + 1);
    layers[layer] = {here(kept, {pages, page_tokens, 1, latent_width})};
    const model::Batch batch{.count = rows,
                             .rows = {.sequences = std::ssize(pieces),
                                      .seq_begin = laid.seq_begin.data(),
                                      .positions = laid.positions.data(),
                                      .block_table = tensor::ConstTensor(
                                          reinterpret_cast<const std::byte*>(laid.table.data()),
                                          DType::i32, {std::ssize(pieces), pages_each})},
                             .pages = layers,
                             .mixes = {.batch = adapters.empty() ? nullptr : &adapters,
                                       .labels = adapters.labels().data()}};
    std::vector<float> out(static_cast<std::size_t>(rows * hidden));
    BlockOps(blocks.host, blocks.host_rope, world.context, DType::f32)
        .run(batch, world.context, world.device, here(laid.x, {rows, hidden}),
             here(out, {rows, hidden}));
    return out;
  }

  std::vector<float> on_device(const std::vector<Piece>& pieces, const Expanded& expanded,
                               const DeviceArray<bf16>& kept, const std::vector<lora::Mix>& mixes) {
    const Laid laid = lay_out(pieces, expanded);
    const auto rows = std::ssize(laid.positions);
    lora::Batch adapters;
    adapters.build(mixes_of_rows(pieces, mixes));
    step_table->upload(adapters, *stream).value();
    const ops::Context context{
        .kernels = &device_table(), .stream = device_table().on(stream->handle()), .exact = false};
    std::vector<bf16> rounded;
    for (const float number : laid.x) rounded.push_back(bf16::from(number));
    const DeviceArray<bf16> input(rounded);
    const DeviceArray<std::int32_t> positions(laid.positions);
    const DeviceArray<std::int32_t> seq_begin(laid.seq_begin);
    const DeviceArray<std::int32_t> table(laid.table);
    const DeviceArray<std::int32_t> position_begin(laid.position_begin);
    const DeviceArray<float> out(static_cast<std::size_t>(rows * hidden));
    std::vector<model::LayerPages> layers(layer + 1);
    layers[layer] = {there(kept, {pages, page_tokens, 1, latent_width})};
    std::int64_t most = 0;
    std::int64_t least = tokens;
    for (const Piece& piece : pieces) {
      most = std::max(most, piece.end - piece.begin);
      least = std::min(least, piece.end - piece.begin);
    }
    const model::Batch batch{.count = rows,
                             .rows = {.sequences = std::ssize(pieces),
                                      .seq_begin = seq_begin.data(),
                                      .positions = positions.data(),
                                      .block_table = there(table, {std::ssize(pieces), pages_each}),
                                      .max_rows = most,
                                      .least_rows = least,
                                      .max_positions = tokens},
                             .pages = layers,
                             .mixes = {.batch = adapters.empty() ? nullptr : &adapters,
                                       .labels = step_table->labels(),
                                       .table = step_table.get()},
                             .parts = laid.parts,
                             .position_begin = position_begin.data()};
    BlockOps ops(blocks.device, blocks.device_rope, context, DType::bf16);
    ops.run(batch, context, *gpu, there(input, {rows, hidden}), there(out, {rows, hidden}));
    stream->synchronize().value();
    launches().value();
    return out.read();
  }

  static std::vector<lora::Mix> mixes_of_rows(const std::vector<Piece>& pieces,
                                              const std::vector<lora::Mix>& mixes) {
    std::vector<lora::Mix> all;
    for (const Piece& piece : pieces)
      all.insert(all.end(), static_cast<std::size_t>(piece.end - piece.begin),
                 mixes.empty() ? lora::Mix() : mixes[piece.sequence]);
    return all;
  }

  // Of kv_b: plain with a bias behind B, or DoRA.
  lora::Adapter adapter(int rank, bool dora) {
    lora::test::AdapterMaker maker(random);
    const std::int64_t in = blocks.host.kv_b.in();
    const std::int64_t out = blocks.host.kv_b.out();
    const int a = maker.add(rank, in);
    const int b = maker.add(out, rank);
    const int extra = maker.add(1, out);
    lora::SiteDelta& delta = maker.site(blocks.host.kv_b.site, in, out);
    delta.factors[0] = maker.factors(a, b, rank, 0.02F);
    (dora ? delta.gain : delta.lora_bias) = extra;
    return maker.done();
  }

  static double distance(const std::vector<float>& got, const std::vector<float>& wanted) {
    double apart = 0;
    double all = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      apart += std::pow(double{got[i]} - double{wanted[i]}, 2);
      all += std::pow(double{wanted[i]}, 2);
    }
    return std::sqrt(apart / all);
  }

  std::mt19937 random{31};
  std::unique_ptr<tensor::Device> gpu =
      tensor::open_device({.kind = tensor::DeviceChoice::Kind::cuda}).value();
  std::unique_ptr<tensor::Stream> stream = gpu->create_stream().value();
  BothBlocks blocks{random, *gpu};
  std::vector<float> x = lora::test::random_numbers(random, sequences* tokens* hidden);
  std::vector<std::int32_t> order;
  lora::test::World world{DType::f32};
  std::unique_ptr<lora::Pool> pool = lora::Pool::create(*gpu, {.bytes = std::uint64_t{8} << 20,
                                                               .page_bytes = 4096,
                                                               .dtype = DType::bf16,
                                                               .directory = true,
                                                               .poison = true})
                                         .value();
  std::unique_ptr<lora::StepTable> step_table =
      lora::StepTable::create(*gpu, *pool, {.rows = 1024, .labels = 8, .terms = 16}).value();
};

// Prompts; then pieces behind what is cached, rows that decode before and behind them.
TEST_F(GpuLatentForms, AgreeWithTheFormulaInAnyMixture) {
  const lora::Adapter plain = adapter(12, false);
  const lora::Adapter dora = adapter(5, true);
  const auto alone = [](lora::Handle handle, float scale) {
    return lora::Mix::make(std::array{lora::Mix::Part{std::move(handle), scale}}).value();
  };
  const std::vector<lora::Mix> host_mixes = {{},
                                             alone(world.load(plain), 1.5F),
                                             {},
                                             alone(world.load(dora), 1),
                                             alone(world.load(plain), 1)};
  const lora::Handle plain_there = pool->load("plain", plain).value();
  const std::vector<lora::Mix> mixes = {{},
                                        alone(plain_there, 1.5F),
                                        {},
                                        alone(pool->load("dora", dora).value(), 1),
                                        alone(plain_there, 1)};
  const auto numbers = static_cast<std::size_t>(pages * page_tokens * latent_width);
  std::vector<float> kept(numbers, NAN);
  const DeviceArray<bf16> kept_absorbed(numbers);
  const DeviceArray<bf16> kept_mixed(numbers);
  struct Case {
    std::vector<Piece> pieces;
    Expanded expanded;
  };
  const std::vector<Case> steps = {
      {{{0, 0, 130}, {1, 0, 70}, {2, 0, 1}, {3, 0, 33}, {4, 0, 200}}, {0, 5}},
      {{{2, 1, 2}, {1, 70, 71}, {0, 130, 300}, {3, 33, 100}, {4, 200, 201}}, {2, 4}}};
  for (const auto& [pieces, expanded] : steps) {
    const std::vector<float> wanted = on_host(pieces, kept, host_mixes);
    const double absorbed = distance(on_device(pieces, {}, kept_absorbed, mixes), wanted);
    const double mixed = distance(on_device(pieces, expanded, kept_mixed, mixes), wanted);
    // x and weights are bf16's own; latents, queries, keys, values, softmax weights and what goes
    // into o are rounded to it, each by 2^-9 at most, and scores of a size of some units pass that
    // on. Both forms round as often, in other places.
    EXPECT_LE(absorbed, 1e-2);
    EXPECT_LE(mixed, 1e-2);
    EXPECT_LE(mixed, 1.5 * absorbed);
  }
}

TEST_F(GpuLatentForms, ExpandedBaseRowsDoNotSeeAdaptersBesideThem) {
  const std::vector<lora::Mix> mixes = {
      {},
      lora::Mix::make(
          std::array{lora::Mix::Part{pool->load("plain", adapter(12, false)).value(), 1.0F}})
          .value()};
  const std::vector<Piece> pieces = {{0, 0, 150}, {1, 0, 150}};
  const auto numbers = static_cast<std::size_t>(pages * page_tokens * latent_width);
  const DeviceArray<bf16> kept(numbers);
  const std::vector<float> alone = on_device(pieces, {0, 2}, kept, {});
  const std::vector<float> beside = on_device(pieces, {0, 2}, kept, mixes);
  const std::size_t own = std::size_t{150} * hidden;
  EXPECT_TRUE(std::equal(alone.begin(), alone.begin() + own, beside.begin()));
  EXPECT_FALSE(std::equal(alone.begin() + own, alone.end(), beside.begin() + own));
}

}  // namespace
}  // namespace motley::gpu_tests
