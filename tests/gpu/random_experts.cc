#include "gpu/random_experts.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "gpu/device_kernels.h"
#include "lora/pages/packed_layout.h"

namespace motley::gpu_tests {

using namespace kernels::cuda;  // NOLINT(google-build-using-namespace): the test's subject
using kernels::InputRounding;

namespace {

// Numbers of bf16 from -1/16 to 1/16.
std::vector<std::uint8_t> random_bf16(std::size_t count, unsigned seed, unsigned exponent = 0x3D) {
  std::mt19937 random(seed);
  std::vector<std::uint8_t> bytes(count * 2);
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = static_cast<unsigned>(random());
    bytes[2 * i] = static_cast<std::uint8_t>(bits & 0x7F);
    bytes[2 * i + 1] = static_cast<std::uint8_t>(exponent | (bits >> 8 & 0x80));
  }
  return bytes;
}

// A scale of about 1/256 in each of the types that a blob may have.
void put_scale(std::uint8_t* to, const BlobLayout& layout) {
  constexpr float scale = 1.0F / 256;
  std::uint32_t bits = 0;
  std::memcpy(&bits, &scale, sizeof bits);
  if (layout.scale_bytes == 4) std::memcpy(to, &bits, 4);
  if (layout.scale_bytes == 2) {
    const auto high = static_cast<std::uint16_t>(bits >> 16);
    std::memcpy(to, &high, 2);
  }
  // A power of two, or a number of FP8, of nearly the same size.
  if (layout.scale_bytes == 1)
    *to = static_cast<std::uint8_t>(layout.scales == 8 ? 0x08 : 119 + layout.scale_offset);
}

// One expert's weights. Codes of 8 bits are no NaN in any type.
std::vector<std::uint8_t> random_weights(ExpertFormat format, int rows, int columns,
                                         unsigned seed) {
  const std::size_t bytes = packed_expert_bytes(format, 1, rows, columns);
  if (format == ExpertFormat::bf16) return random_bf16(bytes / 2, seed);
  const BlobLayout layout = blob_layout(format);
  std::mt19937 random(seed);
  std::vector<std::uint8_t> made(bytes);
  for (std::size_t blob = 0; blob < bytes; blob += static_cast<std::size_t>(layout.bytes())) {
    std::uint8_t* const to = made.data() + blob;
    for (int i = 0; i < layout.code_bytes(); ++i)
      to[i] = static_cast<std::uint8_t>(random() & (layout.bits == 8 ? 0xB7 : 0xFF));
    for (int i = 0; i < layout.rows * layout.scales; ++i) {
      put_scale(to + layout.code_bytes() + i * layout.scale_bytes, layout);
      if (layout.zero_points) to[layout.zeros_at() + i] = 7;
    }
  }
  return made;
}

DeviceArray<std::uint8_t> repeated(const std::vector<std::uint8_t>& one, int times) {
  DeviceArray<std::uint8_t> all(one.size() * static_cast<std::size_t>(times));
  all.write(one);
  for (int i = 1; i < times; ++i)
    EXPECT_EQ(cudaMemcpy(all.data() + static_cast<std::size_t>(i) * one.size(), all.data(),
                         one.size(), cudaMemcpyDefault),
              cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  return all;
}

InputRounding rounding_of(ExpertFormat format) {
  if (format == ExpertFormat::int8_rows)
    return {.scales = InputRounding::Scales::row, .type = DType::i8};
  return {.scales = InputRounding::Scales::row_block, .type = DType::f8_e4m3, .columns = 128};
}

}  // namespace

RandomExperts::RandomExperts(ExpertFormat format, const ExpertShape& of)
    : shape(of),
      gate_up_(repeated(random_weights(format, 2 * of.intermediate, of.hidden, 1), of.experts)),
      down_(repeated(random_weights(format, of.hidden, of.intermediate, 2), of.experts)) {
  packed.format = format;
  packed.gate_up = gate_up_.data();
  packed.down = down_.data();
  packed.scales_of_rows = format == ExpertFormat::int8_rows;
  packed.scales_of_tiles = format == ExpertFormat::fp8_rows;
  if (blob_layout(format).row_scales) {
    const auto ones = [&](int rows) {
      return DeviceArray<float>(std::vector<float>(
          static_cast<std::size_t>(of.experts) * static_cast<std::size_t>(rows), 1.0F / 64));
    };
    gate_up_rows_ = ones(2 * of.intermediate);
    down_rows_ = ones(of.hidden);
    packed.gate_up_rows = gate_up_rows_.data();
    packed.down_rows = down_rows_.data();
  }
  if (!has_coded_inputs(format)) return;
  each_ = DeviceArray<ExpertInputs>(std::vector<ExpertInputs>(static_cast<std::size_t>(of.experts),
                                                              {.rounding = rounding_of(format)}));
  inputs_ = {.each = each_.data(), .rounding = rounding_of(format)};
}

RandomAdapters::RandomAdapters(const ExpertShape& shape, int adapters, int rank, DType factor_type)
    : count(adapters) {
  const bool f8 = factor_type == DType::f8_e4m3;
  const int columns[2] = {lora::packed_columns(rank, rank), lora::packed_columns(rank, 0)};
  const int in[2] = {shape.hidden, shape.intermediate};
  const int out[2] = {2 * shape.intermediate, shape.hidden};
  // A and B of each adapter and seam.
  std::size_t used = 0;
  std::vector<std::size_t> offsets;
  for (int i = 0; i < 2 * count; ++i) {
    const auto width = static_cast<std::size_t>(columns[i % 2]);
    const auto depth = static_cast<std::size_t>(lora::packed_depth(in[i % 2]));
    const auto rows = static_cast<std::size_t>(lora::packed_rows(out[i % 2]));
    for (const auto& [numbers, scales] : {std::pair{width * depth, width}, {rows * width, rows}}) {
      offsets.push_back(used);
      used += ((f8 ? numbers + scales * 4 : numbers * 2) + 255) / 256 * 256;
    }
  }
  if (f8) {
    // Small numbers, whether they are read as FP8 or as float32 scales.
    std::mt19937 random(3);
    std::vector<std::uint8_t> bytes(used);
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(0x38 | (random() & 7));
    factors_ = DeviceArray<std::uint8_t>(bytes);
  } else {
    factors_ = DeviceArray<std::uint8_t>(random_bf16(used / 2, 3));
  }
  std::vector<kernels::FactorEntry> entries;
  for (int adapter = 0; adapter < count; ++adapter)
    for (int seam = 0; seam < 2; ++seam) {
      const auto at = static_cast<std::size_t>(adapter * 2 + seam) * 2;
      const kernels::FactorEntry entry{.a = factors_.data() + offsets[at],
                                       .b = factors_.data() + offsets[at + 1],
                                       .rank = columns[seam],
                                       .split = seam == 0 ? (rank + 7) / 8 * 8 : columns[1],
                                       .scale = {0.5F, 0.5F}};
      entries.insert(entries.end(), static_cast<std::size_t>(shape.experts), entry);
    }
  entries_ = DeviceArray<kernels::FactorEntry>(entries);
  std::vector<kernels::AdapterTerm> terms;
  for (int i = 0; i < count; ++i)
    terms.push_back({.expert_factors = entries_.data() +
                                       std::size_t{2} * static_cast<std::size_t>(i * shape.experts),
                     .expert_layers = 1,
                     .experts = shape.experts,
                     .scale = 1});
  terms_ = DeviceArray<kernels::AdapterTerm>(terms);
  std::vector<std::int32_t> begin(static_cast<std::size_t>(count) + 1);
  std::iota(begin.begin(), begin.end(), 0);
  term_begin_ = DeviceArray<std::int32_t>(begin);
  deltas = {.term_begin = term_begin_.data(),
            .terms = terms_.data(),
            .factor_type = factor_type,
            .max_terms = 1,
            .max_gate_up_rank = columns[0],
            .max_down_rank = columns[1]};
}

RandomBatch::RandomBatch(const RandomExperts& experts, int experts_per_token,
                         std::int64_t max_tokens, int layers)
    : layers_(layers) {
  const auto tokens = static_cast<std::size_t>(max_tokens);
  const auto pairs = tokens * static_cast<std::size_t>(experts_per_token);
  const auto numbers = tokens * static_cast<std::size_t>(experts.shape.hidden);
  const auto bytes = random_bf16(numbers, 5, 0x3F);
  std::vector<std::uint16_t> x(numbers);
  std::memcpy(x.data(), bytes.data(), bytes.size());
  x_ = DeviceArray<std::uint16_t>(x);
  out_ = DeviceArray<std::uint16_t>(numbers);
  label_of_ = DeviceArray<std::int32_t>(tokens);
  by_label_ = DeviceArray<std::int32_t>(tokens);
  std::mt19937 random(7);
  std::vector<std::int32_t> all(static_cast<std::size_t>(experts.shape.experts));
  std::iota(all.begin(), all.end(), 0);
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < tokens * static_cast<std::size_t>(layers); ++i) {
    std::ranges::shuffle(all, random);
    ids.insert(ids.end(), all.begin(), all.begin() + experts_per_token);
  }
  ids_ = DeviceArray<std::int32_t>(ids);
  weights_ = DeviceArray<float>(std::vector<float>(pairs, 0.125F));
  params_.shape = experts.shape;
  params_.experts_per_token = experts_per_token;
  params_.max_tokens = max_tokens;
  params_.weights = experts.packed;
  for (GroupedInputs& inputs : params_.inputs) inputs = experts.inputs();
  params_.x = x_.data();
  params_.routing_weights = weights_.data();
  params_.out = out_.data();
  params_.out_type = DType::bf16;
}

void RandomBatch::set(std::int64_t tokens, const RandomAdapters* adapters) {
  params_.tokens = tokens;
  params_.deltas = adapters != nullptr ? adapters->deltas : GroupedDeltas{};
  labels_ = 0;
  if (adapters != nullptr) {
    labels_ = adapters->count;
    std::vector<std::int32_t> labels;
    for (std::int64_t t = 0; t < tokens; ++t)
      labels.push_back(static_cast<std::int32_t>(t % (labels_ + 1)) - (tokens > 1 ? 1 : 0));
    label_of_.write(labels);
    params_.deltas.labels = label_of_.data();
    params_.deltas.tokens_by_label = by_label_.data();
  }
  const std::size_t bytes = grouped_scratch_bytes(params_);
  if (bytes > scratch_.size()) scratch_ = DeviceArray<std::uint8_t>(bytes);
  params_.scratch = scratch_.data();
}

std::vector<std::uint16_t> RandomBatch::run(const GroupedTiles& tiles) {
  const auto numbers = static_cast<std::size_t>(params_.tokens * params_.shape.hidden);
  EXPECT_EQ(cudaMemsetAsync(out_.data(), 0xFF, numbers * 2, nullptr), cudaSuccess);
  prepare_grouped_scratch(params_, default_stream());
  if (labels_ > 0)
    sort_tokens_by_label(label_of_.data(), params_.tokens, labels_, by_label_.data(),
                         default_stream());
  for (int layer = 0; layer < layers_; ++layer) {
    GroupedExperts each = params_;
    each.turn = layer;
    each.ids = ids_.data() + layer * params_.tokens * params_.experts_per_token;
    run_grouped_experts(each, tiles, default_stream());
  }
  const auto ran = launches();
  EXPECT_TRUE(ran.ok()) << ran.error().message();
  std::vector<std::uint16_t> out(numbers);
  // Not of the whole device, on which another stream may hold multiprocessors.
  EXPECT_EQ(cudaMemcpyAsync(out.data(), out_.data(), numbers * 2, cudaMemcpyDefault, nullptr),
            cudaSuccess);
  const cudaError_t status = cudaStreamSynchronize(nullptr);
  EXPECT_EQ(status, cudaSuccess) << cudaGetErrorString(status);
  return out;
}

}  // namespace motley::gpu_tests
