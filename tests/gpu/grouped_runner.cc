#include "gpu/grouped_runner.h"

#include <algorithm>

namespace motley::gpu_tests {

using kernels::WeightKind;
using namespace kernels::cuda;  // NOLINT(google-build-using-namespace): the test's subject

namespace {

std::vector<std::uint8_t> bf16_bytes(const std::vector<float>& values) {
  std::vector<std::uint8_t> bytes;
  bytes.reserve(values.size() * 2);
  for (const float value : values) {
    const std::uint16_t bits = bf16_bits(value);
    bytes.push_back(static_cast<std::uint8_t>(bits));
    bytes.push_back(static_cast<std::uint8_t>(bits >> 8));
  }
  return bytes;
}

// B [out, rank] with rows padded to a multiple of 8 by zeros.
std::vector<float> padded_b(const WorldFactor& factor) {
  const auto rank = static_cast<std::size_t>(factor.rank);
  const std::size_t padded = (rank + 7) / 8 * 8;
  std::vector<float> values;
  for (std::size_t row = 0; row < factor.b.size() / std::max<std::size_t>(rank, 1); ++row)
    for (std::size_t r = 0; r < padded; ++r)
      values.push_back(r < rank ? factor.b[row * rank + r] : 0.0F);
  return values;
}

}  // namespace

DeviceImages::DeviceImages(const WorldLayer& layer) : layer_(layer) {
  const WorldShape& s = layer.shape;
  shape = {.experts = s.experts, .hidden = s.hidden, .intermediate = s.intermediate};
  images.format = s.kind == WeightKind::bf16 ? ExpertFormat::bf16 : ExpertFormat::int4;
  images.scales_per_128 = s.kind == WeightKind::bf16 ? 1 : int4_scales_per_128(s.group);
  const auto bytes = [&](int rows, int columns) {
    return expert_image_bytes(images.format, images.scales_per_128, s.experts, rows, columns);
  };
  gate_up_ = DeviceArray<std::uint8_t>(bytes(2 * s.intermediate, s.hidden));
  down_ = DeviceArray<std::uint8_t>(bytes(s.hidden, s.intermediate));
  images.gate_up = gate_up_.data();
  images.down = down_.data();
  EXPECT_TRUE(grouped_supports(shape, s.experts_per_token, s.kind, s.group).ok());
  EXPECT_TRUE(pack_experts({.shape = shape,
                            .format = images.format,
                            .scales_per_128 = images.scales_per_128,
                            .gate = layer_.gate(),
                            .up = layer_.up(),
                            .down = layer_.down(),
                            .gate_up_image = gate_up_.data(),
                            .down_image = down_.data()},
                           {})
                  .ok());
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

PackedAdapters::PackedAdapters(const WorldShape& shape, const std::vector<WorldAdapter>& adapters,
                               const WorldMixes& mixes) {
  std::vector<Table> gate_up;
  std::vector<Table> down;
  for (const WorldAdapter& adapter : adapters) {
    gate_up.push_back(put(shape, adapter.gate, adapter.up, true));
    down.push_back(put(shape, adapter.down, {}, false));
  }
  std::vector<std::int32_t> begin{0};
  std::vector<GroupedTerm> terms;
  for (const auto& mix : mixes) {
    std::vector<int> ranks(2 * static_cast<std::size_t>(shape.experts));
    for (const WorldTerm& term : mix) {
      const auto adapter = static_cast<std::size_t>(term.adapter);
      terms.push_back({gate_up[adapter].entries, down[adapter].entries, term.scale});
      for (std::size_t e = 0; e < std::size_t(shape.experts); ++e) {
        ranks[2 * e] += gate_up[adapter].ranks[e];
        ranks[2 * e + 1] += down[adapter].ranks[e];
      }
    }
    begin.push_back(static_cast<std::int32_t>(terms.size()));
    deltas.most_terms = std::max(deltas.most_terms, static_cast<int>(mix.size()));
    for (std::size_t e = 0; e < std::size_t(shape.experts); ++e) {
      deltas.most_gate_up_rank = std::max(deltas.most_gate_up_rank, ranks[2 * e]);
      deltas.most_down_rank = std::max(deltas.most_down_rank, ranks[2 * e + 1]);
    }
  }
  term_begin_ = DeviceArray<std::int32_t>(begin);
  terms_ = DeviceArray<GroupedTerm>(terms);
  deltas.term_begin = term_begin_.data();
  deltas.terms = terms_.data();
}

PackedAdapters::Table PackedAdapters::put(const WorldShape& shape,
                                          const std::vector<WorldFactor>& first,
                                          const std::vector<WorldFactor>& second, bool gate_up) {
  Table table;
  table.ranks.resize(static_cast<std::size_t>(shape.experts));
  if (first.empty() && second.empty()) return table;
  const int in = gate_up ? shape.hidden : shape.intermediate;
  const int out = gate_up ? shape.intermediate : shape.hidden;
  std::vector<PackedDelta> entries;
  std::vector<PackDelta> items;
  std::vector<DeviceArray<std::uint8_t>> sources;
  for (std::size_t e = 0; e < std::size_t(shape.experts); ++e) {
    const WorldFactor none;
    const WorldFactor* const factors[2] = {first.empty() ? &none : &first[e],
                                           second.empty() ? &none : &second[e]};
    const bool shared = factors[0]->rank > 0 && factors[0]->a == factors[1]->a;
    const int rank = packed_rank(factors[0]->rank, factors[1]->rank, shared);
    PackedDelta entry{};
    if (rank > 0) {
      PackDelta item{};
      for (int i = 0; i < 2; ++i) {
        item.rank[i] = factors[i]->rank;
        item.padded[i] = (factors[i]->rank + 7) / 8 * 8;
        sources.emplace_back(bf16_bytes(factors[i]->a));
        item.a[i] = sources.back().data();
        sources.emplace_back(bf16_bytes(padded_b(*factors[i])));
        item.b[i] = sources.back().data();
      }
      item.shared_a = shared ? 1 : 0;
      item.gate_up = gate_up ? 1 : 0;
      item.in = in;
      item.out = out;
      pages_.emplace_back(packed_a_bytes(rank, in));
      item.a_image = pages_.back().data();
      pages_.emplace_back(packed_b_bytes(rank, gate_up ? 2 * out : out));
      item.b_image = pages_.back().data();
      items.push_back(item);
      entry = {.a = item.a_image,
               .b = item.b_image,
               .rank = rank,
               .split = shared ? rank : item.padded[0],
               .scale = {factors[0]->scale, factors[1]->scale}};
    }
    entries.push_back(entry);
    table.ranks[e] = rank;
  }
  const DeviceArray<PackDelta> device_items(items);
  EXPECT_TRUE(pack_deltas(device_items.data(), static_cast<int>(items.size()), {}).ok());
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  tables_.push_back(std::make_unique<DeviceArray<PackedDelta>>(entries));
  table.entries = tables_.back()->data();
  return table;
}

GroupedBatch::GroupedBatch(const WorldLayer& layer, const DeviceImages& images,
                           const WorldRows& rows, const PackedAdapters* adapters, int label_count,
                           DType out_type)
    : label_count_(label_count),
      x_(bf16_bytes(rows.x)),
      ids_(rows.ids),
      labels_(rows.labels),
      by_label_(rows.labels.size()),
      weights_(rows.weights),
      out_(rows.x.size() * (out_type == DType::f32 ? 4 : 2)) {
  const WorldShape& shape = layer.shape;
  params.shape = images.shape;
  params.experts_per_token = shape.experts_per_token;
  params.tokens = rows.tokens;
  params.most_tokens = rows.tokens + 3;
  params.weights = images.images;
  params.gate_bias = images.layer().gate_bias();
  params.up_bias = images.layer().up_bias();
  params.down_bias = images.layer().down_bias();
  params.activation = shape.activation;
  params.x = x_.data();
  params.ids = ids_.data();
  params.routing_weights = weights_.data();
  params.out = out_.data();
  params.out_type = out_type;
  if (adapters != nullptr && !rows.labels.empty()) {
    params.deltas = adapters->deltas;
    params.deltas.labels = labels_.data();
    params.deltas.tokens_by_label = by_label_.data();
  }
  scratch_ = DeviceArray<std::uint8_t>(grouped_scratch_bytes(params));
  params.scratch = scratch_.data();
}

std::vector<float> GroupedBatch::run(const GroupedTiles& tiles) {
  scratch_.poison();
  out_.poison();
  EXPECT_TRUE(prepare_grouped_scratch(params, {}).ok());
  if (params.deltas.labels != nullptr) {
    EXPECT_TRUE(
        sort_tokens_by_label(labels_.data(), params.tokens, label_count_, by_label_.data(), {})
            .ok());
  }
  const auto ran = run_grouped_experts(params, tiles, {});
  EXPECT_TRUE(ran.ok()) << ran.error().message();
  const cudaError_t status = cudaDeviceSynchronize();
  EXPECT_EQ(status, cudaSuccess) << cudaGetErrorString(status);
  const auto bytes = out_.read();
  std::vector<float> values;
  if (params.out_type == DType::f32) {
    values.resize(bytes.size() / 4);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  for (std::size_t i = 0; i < bytes.size(); i += 2)
    values.push_back(bf16_value(static_cast<std::uint16_t>(bytes[i] | bytes[i + 1] << 8)));
  return values;
}

}  // namespace motley::gpu_tests
