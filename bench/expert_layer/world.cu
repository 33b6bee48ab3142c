#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include <cuda_bf16.h>

#include "lora/pages/packed_layout.h"
#include "world.h"

namespace expert_layer_bench {
namespace {

__device__ std::uint32_t hash32(std::uint64_t seed, std::uint64_t i) {
  std::uint32_t x = static_cast<std::uint32_t>(i) * 0x9E3779B1U ^
                    static_cast<std::uint32_t>(i >> 32) * 0x85EBCA6BU ^
                    static_cast<std::uint32_t>(seed) * 0xC2B2AE35U;
  x ^= x >> 16;
  x *= 0x7FEB352DU;
  x ^= x >> 15;
  x *= 0x846CA68BU;
  return x ^ x >> 16;
}

__global__ void fill(__nv_bfloat16* out, std::size_t count, float unit, std::uint64_t seed) {
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < count;
       i += stride)
    out[i] = __float2bfloat16((static_cast<int>(hash32(seed, i) >> 24) - 128) / 128.0F * unit);
}

// Scales from 1/256 to 1/128, or, of one byte, a power of two that is alike in both types.
__device__ void put_scale(unsigned char* to, const BlobLayout& layout, std::uint32_t random) {
  const int bytes = layout.scale_bytes;
  const float scale = (1.0F + static_cast<float>(random >> 26) / 64.0F) / 256.0F;
  if (bytes == 4) *reinterpret_cast<float*>(to) = scale;
  if (bytes == 2) *reinterpret_cast<__nv_bfloat16*>(to) = __float2bfloat16(scale);
  if (bytes == 1) *to = static_cast<unsigned char>(0x70 + layout.scale_offset);
}

__global__ void fill_blobs(unsigned char* out, std::size_t blobs, BlobLayout layout,
                           std::uint64_t seed) {
  for (std::size_t blob = blockIdx.x; blob < blobs; blob += gridDim.x) {
    unsigned char* const to = out + blob * layout.bytes();
    for (int i = threadIdx.x; i < layout.code_bytes() / 4; i += blockDim.x)
      reinterpret_cast<std::uint32_t*>(to)[i] = hash32(seed, blob * 2048 + i);
    for (int i = threadIdx.x; i < layout.rows * layout.scales; i += blockDim.x) {
      put_scale(to + layout.code_bytes() + i * layout.scale_bytes, layout,
                hash32(seed + 1, blob * 512 + i));
      if (layout.zero_points) to[layout.zeros_at() + i] = 7;
    }
  }
}

// Numbers whether they are read as e4m3 or as float32 scales.
__global__ void fill_f8(std::uint32_t* out, std::size_t count, std::uint64_t seed) {
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < count;
       i += stride)
    out[i] = (hash32(seed, i) & 0x07878787U) | 0x38383838U;
}

}  // namespace

void fill_random(void* out, std::size_t count, float unit, std::uint64_t seed) {
  fill<<<1056, 256>>>(static_cast<__nv_bfloat16*>(out), count, unit, seed);
  CHECK_CUDA(cudaDeviceSynchronize());
}

Weights make_weights(ExpertFormat format, bool codes, std::uint64_t seed) {
  Weights w;
  w.packed.format = format;
  w.packed.scales_of_rows = format == ExpertFormat::int8;
  w.packed.scales_of_tiles = format == ExpertFormat::fp8;
  if (codes) {
    using motley::kernels::InputRounding;
    const InputRounding rounding =
        format == ExpertFormat::int8
            ? InputRounding{.scales = InputRounding::Scales::row, .type = motley::DType::i8}
            : InputRounding{.scales = InputRounding::Scales::row_block,
                            .type = motley::DType::f8_e4m3,
                            .columns = 128};
    w.each_input =
        Memory(std::vector<ExpertInputs>(measured->shape.experts, {.rounding = rounding}));
    w.inputs = {.each = w.each_input.data<ExpertInputs>(), .rounding = rounding};
    const GroupedInputs both[2] = {w.inputs, w.inputs};
    format = w.packed.format = format_for_inputs(w.packed, both, measured->shape);
  }
  const auto make = [&](int rows, int columns, std::uint64_t own) {
    const std::size_t bytes = packed_expert_bytes(format, measured->shape.experts, rows, columns);
    Memory memory(bytes);
    if (format == ExpertFormat::bf16) {
      fill_random(memory.data(), bytes / 2, 1.0F / 32, own);
    } else {
      const BlobLayout layout = blob_layout(format);
      fill_blobs<<<1056, 256>>>(memory.data<unsigned char>(),
                                bytes / static_cast<std::size_t>(layout.bytes()), layout, own);
      CHECK_CUDA(cudaDeviceSynchronize());
    }
    return memory;
  };
  w.gate_up = make(2 * measured->shape.intermediate, measured->shape.hidden, seed);
  w.down = make(measured->shape.hidden, measured->shape.intermediate, seed + 1);
  if (blob_layout(format).row_scales) {
    const auto ones = [](int rows) {
      return Memory(
          std::vector<float>(static_cast<std::size_t>(measured->shape.experts) * rows, 1.0F));
    };
    w.gate_up_rows = ones(2 * measured->shape.intermediate);
    w.down_rows = ones(measured->shape.hidden);
    w.packed.gate_up_rows = w.gate_up_rows.data<float>();
    w.packed.down_rows = w.down_rows.data<float>();
  }
  w.packed.gate_up = w.gate_up.data();
  w.packed.down = w.down.data();
  return w;
}

double bytes_of_expert(const PackedExperts& packed) {
  const auto bytes = [&](int rows, int columns) {
    return static_cast<double>(packed_expert_bytes(packed.format, 1, rows, columns));
  };
  return bytes(2 * measured->shape.intermediate, measured->shape.hidden) +
         bytes(measured->shape.hidden, measured->shape.intermediate);
}

Adapters make_adapters(const AdapterKind& kind, std::uint64_t seed) {
  using motley::lora::packed_columns;
  using motley::lora::packed_depth;
  using motley::lora::packed_rows;
  Adapters a;
  a.kind = kind;
  const auto adapters = static_cast<std::size_t>(kind.count);
  a.factors.resize(adapters * 2 * measured->shape.experts);
  // Offsets first, addresses when the arena is there.
  std::size_t used = 0;
  const auto take = [&](std::int64_t rows, std::int64_t columns) {
    const auto numbers = static_cast<std::size_t>(rows * columns);
    const std::size_t at = used;
    used += (kind.f8 ? numbers + static_cast<std::size_t>(rows) * 4 : numbers * 2) + 255;
    used = used / 256 * 256;
    return at;
  };
  struct Offsets {
    std::size_t a, b;
  };
  std::vector<Offsets> offsets(a.factors.size());
  for (std::size_t i = 0; i < adapters; ++i) {
    const int rank = kind.ranks[i % kind.ranks.size()];
    const int both = packed_columns(rank, rank);
    const int one = packed_columns(rank, 0);
    for (int e = 0; e < measured->shape.experts; ++e) {
      const bool own = e == 0 || !kind.shared_outer;
      const std::size_t up = a.place(i, 0, e);
      const std::size_t down = a.place(i, 1, e);
      offsets[up].a = own ? take(both, packed_depth(measured->shape.hidden)) : offsets[up - 1].a;
      offsets[up].b = take(packed_rows(2 * std::int64_t{measured->shape.intermediate}), both);
      offsets[down].a = take(one, packed_depth(measured->shape.intermediate));
      offsets[down].b = own ? take(packed_rows(measured->shape.hidden), one) : offsets[down - 1].b;
      a.factors[up] = {
          .rank = kind.only_second ? 0 : both, .split = (rank + 7) / 8 * 8, .scale = {0.5F, 0.5F}};
      a.factors[down] = {.rank = kind.only_first ? 0 : one, .split = one, .scale = {0.5F, 0.5F}};
    }
    a.deltas.max_gate_up_rank = std::max(a.deltas.max_gate_up_rank, both);
    a.deltas.max_down_rank = std::max(a.deltas.max_down_rank, one);
  }
  a.packed = Memory(used);
  if (kind.f8) {
    fill_f8<<<1056, 256>>>(a.packed.data<std::uint32_t>(), used / 4, seed);
    CHECK_CUDA(cudaDeviceSynchronize());
  } else {
    fill_random(a.packed.data(), used / 2, 1.0F / 32, seed);
  }
  for (std::size_t at = 0; at < a.factors.size(); ++at) {
    a.factors[at].a = a.packed.data<unsigned char>() + offsets[at].a;
    a.factors[at].b = a.packed.data<unsigned char>() + offsets[at].b;
  }
  a.tables = Memory(a.factors);
  std::vector<AdapterTerm> terms;
  std::vector<std::int32_t> begin{0};
  for (std::size_t i = 0; i < adapters; ++i) {
    terms.push_back({.expert_factors = a.tables.data<FactorEntry>() + a.place(i, 0, 0),
                     .expert_layers = 1,
                     .experts = measured->shape.experts,
                     .scale = 1});
    begin.push_back(static_cast<std::int32_t>(terms.size()));
  }
  a.terms = Memory(terms);
  a.term_begin = Memory(begin);
  a.deltas.max_terms = 1;
  a.deltas.factor_type = kind.f8 ? motley::DType::f8_e4m3 : motley::DType::bf16;
  a.deltas.terms = a.terms.data<AdapterTerm>();
  a.deltas.term_begin = a.term_begin.data<std::int32_t>();
  return a;
}

namespace {

// [layer][tokens, top_k], uniform; -1 for an expert that stands elsewhere.
std::vector<std::vector<std::int32_t>> uniform_ids(std::int64_t tokens, int layers,
                                                   std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::int32_t> order(measured->routed);
  std::iota(order.begin(), order.end(), 0);
  std::size_t at = order.size();  // one token: successive layers take other experts
  std::vector<std::vector<std::int32_t>> all(static_cast<std::size_t>(layers));
  for (auto& ids : all) {
    for (std::int64_t t = 0; t < tokens; ++t) {
      if (tokens > 1 || at + top_k > order.size()) {
        std::shuffle(order.begin(), order.end(), random);
        at = 0;
      }
      for (int j = 0; j < top_k; ++j) {
        const std::int32_t expert = order[at + static_cast<std::size_t>(j)];
        ids.push_back(expert < measured->shape.experts ? expert : -1);
      }
      at += top_k;
    }
  }
  return all;
}

std::vector<std::int32_t> labels_in_turn(std::int64_t tokens, int count) {
  std::vector<std::int32_t> labels;
  for (std::int64_t t = 0; t < tokens; ++t) labels.push_back(static_cast<std::int32_t>(t % count));
  return labels;
}

}  // namespace

Batch make_batch(std::int64_t tokens, int layers, const Adapters* adapters, std::uint64_t seed) {
  Batch b;
  b.tokens = tokens;
  const auto pairs = static_cast<std::size_t>(tokens * top_k);
  b.ids = uniform_ids(tokens, layers, seed);
  std::mt19937_64 random(seed);
  for (const auto& ids : b.ids) {
    std::vector<float> weights;
    for (std::size_t i = 0; i < ids.size(); ++i)
      weights.push_back(0.05F + static_cast<float>(random() % 1000) / 4000.0F);
    b.device_ids.emplace_back(ids);
    b.routing_weights.emplace_back(weights);
  }
  b.x = Memory(pairs / top_k * measured->shape.hidden * 2 * static_cast<std::size_t>(layers));
  fill_random(b.x.data(), pairs / top_k * measured->shape.hidden * static_cast<std::size_t>(layers),
              2.0F, seed + 1);
  b.out = Memory(pairs / top_k * measured->shape.hidden * 2);
  if (adapters != nullptr) {
    b.labels = labels_in_turn(tokens, adapters->kind.count);
    b.device_labels = Memory(b.labels);
    b.tokens_by_label = Memory(pairs / top_k * 4);
    sort_tokens_by_label(b.device_labels.data<std::int32_t>(), tokens, adapters->kind.count,
                         b.tokens_by_label.data<std::int32_t>(), motley::bench::default_stream());
  }
  Weights none;
  GroupedExperts g = b.params(0, none, adapters);
  b.scratch = Memory(grouped_scratch_bytes(g));
  g.scratch = b.scratch.data();
  prepare_grouped_scratch(g, motley::bench::default_stream());
  CHECK_CUDA(cudaDeviceSynchronize());
  return b;
}

PlannedBatch::PlannedBatch(std::int64_t tokens, int layers, int labels)
    : tokens_(tokens), label_count_(labels) {
  for (const auto& ids : uniform_ids(tokens, layers, 3)) ids_.emplace_back(ids);
  const std::int64_t pairs = tokens * top_k;
  const std::int64_t tiles = max_tiles(pairs, measured->shape.experts, tile_places);
  const auto numbers = [](std::int64_t count) {
    return Memory(static_cast<std::size_t>(count) * 4);
  };
  order_ = numbers(pairs);
  of_places_ = numbers(pairs);
  places_ = numbers(pairs);
  expert_begin_ = numbers(measured->shape.experts + 1);
  tile_begin_ = numbers(measured->shape.experts + 1);
  tiles_ = Memory(static_cast<std::size_t>(tiles) * sizeof(ExpertTile));
  piece_begin_ = numbers(tiles + 1);
  pieces_ = Memory(static_cast<std::size_t>(pairs) * sizeof(ExpertPiece));
  counts_ = numbers(plan_scratch_numbers(pairs, measured->shape.experts));
  if (labels == 0) return;
  labels_ = Memory(labels_in_turn(tokens, labels));
  by_label_ = numbers(tokens);
  sort_labels(motley::bench::default_stream());
  CHECK_CUDA(cudaDeviceSynchronize());
}

PlanExperts PlannedBatch::params(int layer) const {
  PlanExperts p;
  p.tokens = tokens_;
  p.experts_per_token = top_k;
  p.experts = measured->shape.experts;
  p.ids = ids_[static_cast<std::size_t>(layer)].data<std::int32_t>();
  p.labels = labels_.data<std::int32_t>();
  p.tokens_by_label = by_label_.data<std::int32_t>();
  p.tile_places = tile_places;
  p.plan = {.order = order_.data<std::int32_t>(),
            .tokens = of_places_.data<std::int32_t>(),
            .places = places_.data<std::int32_t>(),
            .expert_begin = expert_begin_.data<std::int32_t>(),
            .tile_begin = tile_begin_.data<std::int32_t>(),
            .tiles = tiles_.data<ExpertTile>(),
            .piece_begin = piece_begin_.data<std::int32_t>(),
            .pieces = pieces_.data<ExpertPiece>(),
            .block_counts = counts_.data<std::int32_t>()};
  return p;
}

void PlannedBatch::sort_labels(motley::StreamHandle stream) const {
  sort_tokens_by_label(labels_.data<std::int32_t>(), tokens_, label_count_,
                       by_label_.data<std::int32_t>(), stream);
}

GroupedExperts Batch::params(int layer, const Weights& weights, const Adapters* adapters) const {
  const auto at = static_cast<std::size_t>(layer);
  GroupedExperts g;
  g.shape = measured->shape;
  g.experts_per_token = top_k;
  g.tokens = tokens;
  g.max_tokens = tokens;
  g.weights = weights.packed;
  for (GroupedInputs& inputs : g.inputs) inputs = weights.inputs;
  g.x =
      x.data<unsigned char>() + at * static_cast<std::size_t>(tokens) * measured->shape.hidden * 2;
  g.ids = device_ids[at].data<std::int32_t>();
  g.routing_weights = routing_weights[at].data<float>();
  if (adapters != nullptr) {
    g.deltas = adapters->deltas;
    g.deltas.labels = device_labels.data<std::int32_t>();
    g.deltas.tokens_by_label = tokens_by_label.data<std::int32_t>();
  }
  g.scratch = scratch.data();
  g.turn = layer;
  g.out = out.data();
  g.out_type = motley::DType::bf16;
  return g;
}

double Batch::live_experts() const {
  double live = 0;
  for (const auto& layer : ids) {
    std::set<std::int32_t> experts(layer.begin(), layer.end());
    experts.erase(-1);
    live += static_cast<double>(experts.size());
  }
  return live / static_cast<double>(ids.size());
}

double Batch::adapter_bytes(const Adapters& adapters) const {
  double bytes = 0;
  for (const auto& layer : ids) {
    std::set<std::pair<const void*, double>> blobs;
    for (std::size_t pair = 0; pair < layer.size(); ++pair) {
      if (layer[pair] < 0) continue;
      const auto label = static_cast<std::size_t>(labels[pair / top_k]);
      const FactorEntry& first = adapters.factors[adapters.place(label, 0, layer[pair])];
      const FactorEntry& second = adapters.factors[adapters.place(label, 1, layer[pair])];
      // As in packed factors, rows of gate have zeros in the columns of up, and vice versa.
      const double number = adapters.kind.f8 ? 1 : 2;
      blobs.insert({first.a, number * first.rank * measured->shape.hidden});
      blobs.insert({first.b, number * first.rank * measured->shape.intermediate});
      blobs.insert({second.a, number * second.rank * measured->shape.intermediate});
      blobs.insert({second.b, number * second.rank * measured->shape.hidden});
    }
    for (const auto& blob : blobs) bytes += blob.second;
  }
  return bytes / static_cast<double>(ids.size());
}

}  // namespace expert_layer_bench
