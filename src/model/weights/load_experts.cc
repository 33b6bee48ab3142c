#include "model/weights/load_experts.h"

#include <cstring>
#include <tuple>

#include "base/cat.h"

namespace motley::model {
namespace {

Result<moe::ExpertWeights> load_per_expert(WeightSource& source, const Config& config,
                                           const std::string& module) {
  const std::int64_t hidden = config.hidden;
  const std::int64_t width = config.moe.intermediate;
  // Files of this family use the family's own names, or the common ones.
  const bool own_names = source.has_module(cat(module, ".experts.0.", config.naming.expert_gate));
  const std::string_view gate = own_names ? config.naming.expert_gate : "gate_proj";
  const std::string_view up = own_names ? config.naming.expert_up : "up_proj";
  const std::string_view down = own_names ? config.naming.expert_down : "down_proj";
  moe::ExpertWeights experts;
  for (int e = 0; e < config.moe.router.experts; ++e) {
    const std::string expert = cat(module, ".experts.", e, ".");
    MOTLEY_TRY(quant::Weight gate_weight, source.matrix(cat(expert, gate), {width, hidden}));
    MOTLEY_TRY(quant::Weight up_weight, source.matrix(cat(expert, up), {width, hidden}));
    MOTLEY_TRY(quant::Weight down_weight, source.matrix(cat(expert, down), {hidden, width}));
    experts.gate.push_back(std::move(gate_weight));
    experts.up.push_back(std::move(up_weight));
    experts.down.push_back(std::move(down_weight));
  }
  return experts;
}

// The same as quantised tensors of all experts.
Result<moe::ExpertWeights> load_fused_codes(WeightSource& source, const Config& config,
                                            const std::string& module) {
  using Rows = FusedParts::Rows;
  const std::int64_t hidden = config.hidden;
  const std::int64_t width = config.moe.intermediate;
  const std::int64_t count = config.moe.router.experts;
  moe::ExpertWeights experts;
  for (std::int64_t e = 0; e < count; ++e) {
    const auto load = [&](std::string_view name, quant::TrueSize size, Rows rows) {
      return source.matrix(cat(module, ".experts.", name), size,
                           {.experts = count, .expert = e, .rows = rows});
    };
    MOTLEY_TRY(quant::Weight gate, load("gate_up_proj", {width, hidden}, Rows::first_half));
    MOTLEY_TRY(quant::Weight up, load("gate_up_proj", {width, hidden}, Rows::second_half));
    MOTLEY_TRY(quant::Weight down, load("down_proj", {hidden, width}, Rows::all));
    experts.gate.push_back(std::move(gate));
    experts.up.push_back(std::move(up));
    experts.down.push_back(std::move(down));
  }
  return experts;
}

// gate_up_proj [E, 2I, H], gate's rows above up's, and down_proj [E, H, I]: used in place.
Result<moe::ExpertWeights> load_fused(WeightSource& source, const Config& config,
                                      const std::string& module) {
  const std::int64_t hidden = config.hidden;
  const std::int64_t width = config.moe.intermediate;
  const std::int64_t count = config.moe.router.experts;
  MOTLEY_TRY(const tensor::ConstTensor gate_up,
             source.tensor(cat(module, ".experts.gate_up_proj"), {count, 2 * width, hidden}));
  MOTLEY_TRY(const tensor::ConstTensor down,
             source.tensor(cat(module, ".experts.down_proj"), {count, hidden, width}));
  moe::ExpertWeights experts;
  for (std::int64_t e = 0; e < count; ++e) {
    const tensor::ConstTensor both = gate_up.select(e);
    experts.gate.push_back(quant::Weight::borrow(both.slice(0, 0, width)));
    experts.up.push_back(quant::Weight::borrow(both.slice(0, width, 2 * width)));
    experts.down.push_back(quant::Weight::borrow(down.select(e)));
  }
  return experts;
}

// gpt-oss: [E, H, 2I] with gate in the even columns and up in the odd ones, and [E, I, H].
Result<moe::ExpertWeights> load_transposed(WeightSource& source, const Config& config,
                                           const std::string& module) {
  const std::int64_t hidden = config.hidden;
  const std::int64_t width = config.moe.intermediate;
  const std::int64_t count = config.moe.router.experts;
  MOTLEY_TRY(const tensor::ConstTensor gate_up,
             source.tensor(cat(module, ".experts.gate_up_proj"), {count, hidden, 2 * width}));
  MOTLEY_TRY(const tensor::ConstTensor down,
             source.tensor(cat(module, ".experts.down_proj"), {count, width, hidden}));
  moe::ExpertWeights experts;
  for (std::int64_t e = 0; e < count; ++e) {
    tensor::Allocator& memory = source.memory().host;
    MOTLEY_TRY(quant::Weight gate, transposed_rows(gate_up.select(e), 0, 2, memory));
    MOTLEY_TRY(quant::Weight up, transposed_rows(gate_up.select(e), 1, 2, memory));
    MOTLEY_TRY(quant::Weight transposed, transposed_rows(down.select(e), 0, 1, memory));
    experts.gate.push_back(std::move(gate));
    experts.up.push_back(std::move(up));
    experts.down.push_back(std::move(transposed));
  }
  return experts;
}

// MXFP4: codes of 32 inputs in blocks of 16 bytes, and a power of two for each block.
struct Blocks {
  tensor::ConstTensor codes;   // [rows, inputs / 32, 16]
  tensor::ConstTensor scales;  // [rows, inputs / 32]

  // Rows first, first + step, ...: in place if they are all.
  Result<quant::Weight> rows(std::int64_t first, std::int64_t step,
                             tensor::Allocator& allocator) const {
    const std::int64_t groups = scales.dim(1);
    quant::Weight::Parts parts{.format = {.element = DType::f4,
                                          .bits = 4,
                                          .scales = quant::Format::Scales::group,
                                          .block_columns = 32,
                                          .scale_type = DType::f8_e8m0},
                               .size = {.out = codes.dim(0) / step, .in = groups * 32},
                               .data = codes.bytes(),
                               .scales = scales.bytes()};
    if (step == 1) return quant::Weight(std::move(parts));
    for (const auto& [from, row_bytes, to] : {std::tuple(codes.bytes(), groups * 16, &parts.data),
                                              std::tuple(scales.bytes(), groups, &parts.scales)}) {
      MOTLEY_TRY(tensor::Buffer own,
                 allocator.allocate(static_cast<std::size_t>(parts.size.out * row_bytes)));
      for (std::int64_t row = 0; row < parts.size.out; ++row)
        std::memcpy(own.data() + row * row_bytes, from + (first + row * step) * row_bytes,
                    static_cast<std::size_t>(row_bytes));
      *to = own.data();
      parts.owned.push_back(std::move(own));
    }
    return quant::Weight(std::move(parts));
  }
};

// Of the codes of a scale.
constexpr int not_a_number = 0xFF;

// gpt-oss as released: blocks [E, 2I, H / 32, 16], gate in the even rows and up in the odd ones,
// and [E, H, I / 32, 16].
Result<moe::ExpertWeights> load_blocks(WeightSource& source, const Config& config,
                                       const std::string& module) {
  const std::int64_t hidden = config.hidden;
  const std::int64_t width = config.moe.intermediate;
  const std::int64_t count = config.moe.router.experts;
  if (hidden % 32 != 0 || width % 32 != 0)
    return Error(ErrorCode::bad_file,
                 cat("experts of ", hidden, " and ", width, " inputs are no whole blocks of 32"),
                 module);
  const auto blocks = [&](std::string_view name, std::int64_t rows,
                          std::int64_t in) -> Result<Blocks> {
    Blocks both;
    const std::string experts = cat(module, ".experts.", name);
    MOTLEY_TRY(both.codes,
               source.codes(experts + "_blocks", DType::u8, {count, rows, in / 32, 16}));
    MOTLEY_TRY(both.scales, source.codes(experts + "_scales", DType::u8, {count, rows, in / 32}));
    const auto scales = static_cast<std::size_t>(both.scales.elements());
    if (std::memchr(both.scales.bytes(), not_a_number, scales) != nullptr)
      return Error(ErrorCode::bad_file, "a scale that is not finite",
                   cat("tensor ", quote(experts + "_scales")), "download the checkpoint again");
    return both;
  };
  MOTLEY_TRY(const Blocks gate_up, blocks("gate_up_proj", 2 * width, hidden));
  MOTLEY_TRY(const Blocks down, blocks("down_proj", hidden, width));
  moe::ExpertWeights experts;
  for (std::int64_t e = 0; e < count; ++e) {
    tensor::Allocator& memory = source.memory().host;
    const Blocks both{gate_up.codes.select(e), gate_up.scales.select(e)};
    const Blocks own{down.codes.select(e), down.scales.select(e)};
    MOTLEY_TRY(quant::Weight gate_weight, both.rows(0, 2, memory));
    MOTLEY_TRY(quant::Weight up_weight, both.rows(1, 2, memory));
    MOTLEY_TRY(quant::Weight down_weight, own.rows(0, 1, memory));
    experts.gate.push_back(std::move(gate_weight));
    experts.up.push_back(std::move(up_weight));
    experts.down.push_back(std::move(down_weight));
  }
  return experts;
}

// gate_up_proj_bias [E, 2I], interleaved as its weight is, and down_proj_bias [E, H].
Result<void> load_biases(WeightSource& source, const Config& config, const std::string& module,
                         moe::ExpertWeights& experts) {
  const std::int64_t width = config.moe.intermediate;
  const std::int64_t count = config.moe.router.experts;
  MOTLEY_TRY(const std::vector<float> gate_up,
             source.numbers(cat(module, ".experts.gate_up_proj_bias"), {count, 2 * width}));
  for (std::size_t i = 0; i < gate_up.size(); i += 2) {
    experts.gate_bias.push_back(gate_up[i]);
    experts.up_bias.push_back(gate_up[i + 1]);
  }
  MOTLEY_TRY(experts.down_bias,
             source.numbers(cat(module, ".experts.down_proj_bias"), {count, config.hidden}));
  return {};
}

}  // namespace

Result<std::string> moe_module(const WeightSource& source, const Config& config,
                               std::int32_t layer) {
  const std::string prefix = cat("model.layers.", layer, ".");
  const std::string own = cat(prefix, config.naming.moe_block);
  if (source.has_module(cat(own, ".", config.naming.router))) return own;
  return prefix + "mlp";
}

Result<moe::ExpertWeights> load_experts(WeightSource& source, const Config& config,
                                        const std::string& module) {
  const bool fused = source.has(cat(module, ".experts.gate_up_proj"));
  const bool in_blocks = source.has(cat(module, ".experts.gate_up_proj_blocks"));
  const bool fused_codes = source.has_fused_codes(cat(module, ".experts.gate_up_proj"));
  auto loaded = in_blocks                          ? load_blocks(source, config, module)
                : config.naming.experts_transposed ? load_transposed(source, config, module)
                : fused_codes                      ? load_fused_codes(source, config, module)
                : fused                            ? load_fused(source, config, module)
                                                   : load_per_expert(source, config, module);
  if (!loaded.ok()) return loaded;
  moe::ExpertWeights& experts = *loaded;
  experts.experts = config.moe.router.experts;
  experts.hidden = config.hidden;
  experts.intermediate = config.moe.intermediate;
  experts.activation = config.moe.activation;
  experts.swiglu_limit = static_cast<float>(config.moe.swiglu_limit);
  experts.swiglu_alpha = static_cast<float>(config.moe.swiglu_alpha);
  if (config.moe.expert_biases) {
    MOTLEY_TRY_VOID(load_biases(source, config, module, experts));
  }
  if (auto valid = moe::validate(experts); !valid.ok())
    return std::move(valid).error().within(module);
  return loaded;
}

}  // namespace motley::model
