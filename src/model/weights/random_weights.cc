#include "model/weights/random_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace motley::model {
namespace {

constexpr std::size_t least_block = std::size_t{1} << 20;  // numbers
// Matrices are aligned for vector loads.
constexpr std::size_t alignment = 16;
constexpr std::size_t longest_run = std::size_t{1} << 16;  // bytes that are copied in one run
constexpr float deviation = 0.02F;
constexpr float output_deviation = 0.002F;

// Mixes a counter into 64 random bits.
std::uint64_t mixed(std::uint64_t counter) {
  counter = (counter + 0x9e3779b97f4a7c15U) * 0xbf58476d1ce4e5b9U;
  counter = (counter ^ (counter >> 29)) * 0x94d049bb133111ebU;
  return counter ^ (counter >> 32);
}

std::uint64_t seed_of(std::string_view name) {
  std::uint64_t seed = 14695981039346656037U;
  for (const char c : name) seed = (seed ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return seed;
}

// Uniform in [-1, 1].
float number(std::uint64_t bits) {
  return static_cast<float>(bits >> 40) / static_cast<float>(std::uint64_t{1} << 23) - 1.0F;
}

std::vector<bf16> even_block(std::uint64_t seed, float size, std::size_t count) {
  // Uniform numbers in [-a, a] have a deviation of a / sqrt(3).
  const float most = size * std::sqrt(3.0F);
  std::vector<bf16> block(count);
  for (std::size_t i = 0; i < block.size(); ++i)
    block[i] = bf16::from(most * number(mixed(seed + i)));
  return block;
}

using Experts = RandomWeights::Experts;

bool is_w4a16(Experts experts) {
  return experts == Experts::w4a16 || experts == Experts::w4a16_asym ||
         experts == Experts::w4a16_g32 || experts == Experts::w4a16_actorder;
}

// A byte of codes. int4: 1 to 15, which lie evenly around zero. FP8: 1 to 15 in size, of either
// sign.
unsigned char code_byte(Experts experts, std::uint64_t bits) {
  if (is_w4a16(experts))
    return static_cast<unsigned char>((1 + (bits & 0xFFFFU) % 15) |
                                      (1 + (bits >> 16 & 0xFFFFU) % 15) << 4);
  if (experts == Experts::fp8_block || experts == Experts::mxfp8)
    return static_cast<unsigned char>((bits & 0x80U) | (0x38U + (bits >> 8) % 32));
  return static_cast<unsigned char>(bits);
}

std::vector<bf16> code_block(Experts experts, std::uint64_t seed, std::size_t count) {
  std::vector<bf16> block(count);
  auto* const bytes = reinterpret_cast<unsigned char*>(block.data());
  for (std::size_t i = 0; i < block.size() * sizeof(bf16); ++i)
    bytes[i] = code_byte(experts, mixed(seed + i));
  return block;
}

// The standard deviation of code_byte's numbers.
float code_deviation(Experts experts) {
  switch (experts) {
    case Experts::bf16:
      break;
    case Experts::w4a16:
    case Experts::w4a16_asym:
    case Experts::w4a16_g32:
    case Experts::w4a16_actorder:
      return std::sqrt(56.0F / 3);
    case Experts::w8a16:
    case Experts::w8a16_g32:
    case Experts::w8a8:
      return 73.9F;
    case Experts::mxfp8:
    case Experts::fp8_block:
      return 6.76F;
    case Experts::mxfp4:
    case Experts::nvfp4:
      return 2.93F;
  }
  return 1;
}

constexpr quant::Format coded(DType element, int bits, std::int64_t group, DType scale_type) {
  return {.element = element,
          .bits = bits,
          .scales = quant::Format::Scales::group,
          .block_columns = group,
          .scale_type = scale_type};
}

// Writes `count` scales that are all alike; what the type cannot hold becomes the factor.
void fill_scales(const quant::Format& format, float scale, std::byte* to, std::size_t count) {
  const auto fill = [&]<class Number>(Number number) {
    std::fill_n(reinterpret_cast<Number*>(to), count, number);
  };
  if (format.scale_type == DType::bf16) return fill(bf16::from(scale));
  if (format.scale_type == DType::f8_e8m0) return fill(f8_e8m0::from_rounded_up(scale));
  if (format.scale_type == DType::f8_e4m3) return fill(f8_e4m3::from(1));
  fill(scale);
}

// An offset in a block with at least `bytes` behind it. For small tensors it does not depend on the
// size of the block, so that a small model has the same numbers on every device.
std::size_t place_for(std::uint64_t seed, std::size_t bytes, const std::vector<bf16>& block) {
  constexpr std::size_t least_bytes = least_block * sizeof(bf16);
  const std::size_t all = block.size() * sizeof(bf16);
  const std::size_t room = (bytes <= longest_run ? std::min(all, least_bytes) : all) - bytes;
  return mixed(seed) % (room / alignment + 1) * alignment;
}

// An order of inputs: the same for gate and up, which share theirs.
std::vector<std::int32_t> order_of(std::string_view module, std::int64_t in) {
  const std::string_view block = module.substr(0, module.rfind('.'));
  std::vector<std::int32_t> order(static_cast<std::size_t>(in));
  std::iota(order.begin(), order.end(), 0);
  const std::uint64_t seed = seed_of(block) + static_cast<std::uint64_t>(in);
  for (std::size_t k = order.size(); k > 1; --k)
    std::swap(order[k - 1], order[mixed(seed + k) % k]);
  return order;
}

// Whether it is a linear map of those that checkpoints with quantised inputs quantise.
bool is_map(std::string_view module) {
  return module.ends_with("_proj") || module.ends_with(".in_proj_qkv") ||
         module.ends_with(".in_proj_z");
}

// Of attention, or of what stands in its place.
bool is_output(std::string_view module) {
  return module.ends_with(".o_proj") || module.ends_with(".out_proj");
}

bool is_expert(std::string_view module) { return module.find(".experts.") != module.npos; }

}  // namespace

RandomWeights::RandomWeights(Experts experts, std::int64_t shared_numbers, bool exact_inputs)
    : experts_(experts), shared_numbers_(shared_numbers), exact_inputs_(exact_inputs) {
  // Large enough for the largest tensor at any offset.
  const std::size_t count = least_block + static_cast<std::size_t>(shared_numbers);
  weights_ = even_block(std::uint64_t{1} << 40, deviation, count);
  embeddings_ = even_block(std::uint64_t{2} << 40, 1.0F, least_block);
  outputs_ = even_block(std::uint64_t{4} << 40, output_deviation, least_block);
  if (experts != Experts::bf16) codes_ = code_block(experts, std::uint64_t{3} << 40, count);
}

quant::Format RandomWeights::expert_format(Experts experts, std::int64_t in) {
  const std::int64_t group = in % 128 == 0 ? 128 : 32;
  switch (experts) {
    case Experts::bf16:
      break;
    case Experts::w4a16:
      return coded(DType::i8, 4, group, DType::bf16);
    case Experts::w4a16_asym: {
      quant::Format format = coded(DType::i8, 4, group, DType::bf16);
      format.zero_points = true;
      return format;
    }
    case Experts::w4a16_g32:
      return coded(DType::i8, 4, 32, DType::bf16);
    case Experts::w4a16_actorder: {
      quant::Format format = coded(DType::i8, 4, group, DType::bf16);
      format.input_order = true;
      return format;
    }
    case Experts::w8a16:
      return coded(DType::i8, 8, group, DType::bf16);
    case Experts::w8a16_g32:
      return coded(DType::i8, 8, 32, DType::bf16);
    case Experts::mxfp8:
      return coded(DType::f8_e4m3, 8, 32, DType::f8_e8m0);
    case Experts::fp8_block: {
      quant::Format format = coded(DType::f8_e4m3, 8, 128, DType::f32);
      format.scales = quant::Format::Scales::block;
      format.block_rows = 128;
      format.inputs = kernels::InputRounding::Scales::row_block;
      format.input_type = DType::f8_e4m3;
      format.input_columns = 128;
      return format;
    }
    case Experts::w8a8: {
      quant::Format format = coded(DType::i8, 8, 0, DType::f32);
      format.scales = quant::Format::Scales::channel;
      format.inputs = kernels::InputRounding::Scales::row;
      return format;
    }
    case Experts::mxfp4:
      return coded(DType::f4, 4, 32, DType::f8_e8m0);
    case Experts::nvfp4: {
      quant::Format format = coded(DType::f4, 4, 16, DType::f8_e4m3);
      format.global_scale = true;
      return format;
    }
  }
  return quant::plain_format(DType::bf16);
}

Result<tensor::ConstTensor> RandomWeights::tensor(std::string_view name,
                                                  const tensor::Shape& shape) const {
  const auto bytes = static_cast<std::size_t>(shape.elements()) * sizeof(bf16);
  MOTLEY_CHECK(bytes <= weights_.size() * sizeof(bf16), "a tensor of at most a block");
  const auto* const block = reinterpret_cast<const std::byte*>(weights_.data());
  return tensor::ConstTensor(block + place_for(seed_of(name), bytes, weights_), DType::bf16, shape);
}

namespace {

// "input_layernorm.weight", "post_feedforward_layernorm_1.weight"
bool is_norm(std::string_view name) {
  if (!name.ends_with(".weight")) return false;
  name.remove_suffix(std::string_view(".weight").size());
  const std::size_t dot = name.rfind('.');
  return name.find("norm", dot == std::string_view::npos ? 0 : dot) != std::string_view::npos;
}

}  // namespace

std::vector<float> RandomWeights::numbers(std::string_view name, std::int64_t count) const {
  std::vector<float> values(static_cast<std::size_t>(count));
  if (is_norm(name)) {
    std::ranges::fill(values, 1.0F);
  } else if (!name.ends_with("e_score_correction_bias")) {
    const std::uint64_t seed = seed_of(name);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = deviation * number(mixed(seed + i));
  }
  return values;
}

bool RandomWeights::has_codes(std::string_view module) const {
  const bool all_maps = experts_ == Experts::fp8_block || experts_ == Experts::w8a8;
  return experts_ != Experts::bf16 && (is_expert(module) || (all_maps && is_map(module)));
}

Result<quant::Weight> RandomWeights::matrix(std::string_view module, quant::TrueSize size,
                                            tensor::Allocator& allocator) const {
  if (!has_codes(module)) {
    const std::vector<bf16>& block = module == "model.embed_tokens" ? embeddings_
                                     : is_output(module)            ? outputs_
                                                                    : weights_;
    return place(module, quant::plain_format(DType::bf16), size, block, allocator);
  }
  quant::Format format = expert_format(experts_, size.in);
  if (exact_inputs_) format.keep_inputs_exact();
  return place(module, format, size, codes_, allocator);
}

Result<quant::Weight> RandomWeights::place(std::string_view module, const quant::Format& format,
                                           quant::TrueSize size, const std::vector<bf16>& block,
                                           tensor::Allocator& allocator) const {
  const auto bytes = static_cast<std::size_t>(size.out * ((size.in * format.bits + 7) / 8));
  quant::Weight::Parts parts{.format = format, .size = size};
  if (format.input_order)
    parts.input_order =
        std::make_shared<const std::vector<std::int32_t>>(order_of(module, size.in));
  if (format.scales != quant::Format::Scales::none) {
    const bool rows = format.scales == quant::Format::Scales::channel;
    const std::int64_t columns = rows ? size.in : format.block_columns;
    const std::int64_t groups = (size.in + columns - 1) / columns;
    const auto count =
        static_cast<std::size_t>((size.out + format.block_rows - 1) / format.block_rows * groups);
    MOTLEY_TRY(tensor::Buffer scales, allocator.allocate(count * sizeof(float)));
    const float scale = deviation / code_deviation(experts_);
    fill_scales(format, scale, scales.data(), count);
    if (format.global_scale) parts.scale_factor = scale;
    parts.scales = scales.data();
    parts.owned.push_back(std::move(scales));
  }
  if (format.zero_points) {
    const auto count = static_cast<std::size_t>(
        size.out * ((size.in + format.block_columns - 1) / format.block_columns));
    MOTLEY_TRY(tensor::Buffer zeros, allocator.allocate(count));
    std::memset(zeros.data(), 8, count);
    parts.zero_points = reinterpret_cast<const std::uint8_t*>(zeros.data());
    parts.owned.push_back(std::move(zeros));
  }
  const auto* const source = reinterpret_cast<const std::byte*>(block.data());
  const std::uint64_t seed = seed_of(module);
  if (size.out * size.in <= shared_numbers_ && bytes <= block.size() * sizeof(bf16)) {
    parts.data = source + place_for(seed, bytes, block);
    return quant::Weight(std::move(parts));
  }
  MOTLEY_TRY(tensor::Buffer data, allocator.allocate(bytes));
  for (std::size_t at = 0; at < bytes; at += longest_run) {
    const std::size_t run = std::min(longest_run, bytes - at);
    std::memcpy(data.data() + at, source + place_for(seed + at, run, block), run);
  }
  parts.data = data.data();
  parts.owned.push_back(std::move(data));
  return quant::Weight(std::move(parts));
}

}  // namespace motley::model
