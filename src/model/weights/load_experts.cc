#include "model/weights/load_experts.h"

#include <cstring>
#include <tuple>

#include "base/cat.h"
#include "model/weights/cut_weight.h"

namespace motley::model {
namespace {

struct ExpertCuts {
  Cut gate_up;
  Cut down;
};

ExpertCuts parts_of(const Shard& shard) {
  ExpertCuts cuts;
  if (shard.cuts_experts()) cuts.gate_up.rows = cuts.down.columns = shard.expert_columns;
  cuts.down.column_unit = shard.units.expert_columns;
  return cuts;
}

// The same for all of them at once; whole without a cut.
dist::Range own_range(const Shard& shard, std::int64_t width) {
  return shard.cuts_experts() ? shard.expert_columns : dist::Range{0, width};
}

// The experts that this rank has.
dist::Range own_experts(const Shard& shard, const Config& config) {
  return shard.is_cut() ? shard.experts.experts : dist::Range{0, config.moe.router.experts};
}

// The part of a quantised weight, or all of it.
Result<quant::Weight> part_of(Result<quant::Weight> whole, const Cut& cut,
                              const std::string& module, WeightSource& source) {
  if (!whole.ok() || cut.empty()) return whole;
  return cut_weight(*whole, cut, module, source.memory().host, source.has_input_order(module));
}

// How files call the modules of single experts.
struct ExpertNames {
  std::string module;
  std::string_view gate, up, down;
  bool by_projection = false;  // gate_proj.3 instead of 3.gate_proj, as ModelOpt exports Qwen3-VL

  std::string of(std::int64_t expert, std::string_view projection) const {
    return by_projection ? cat(module, ".experts.", projection, ".", expert)
                         : cat(module, ".experts.", expert, ".", projection);
  }
};

// Files of a family use the family's own names, or the common ones.
ExpertNames find_names(const WeightSource& source, const Naming& naming,
                       const std::string& module) {
  ExpertNames own{.module = module,
                  .gate = naming.expert_gate,
                  .up = naming.expert_up,
                  .down = naming.expert_down};
  if (source.has_module(own.of(0, own.gate))) return own;
  ExpertNames common{.module = module, .gate = "gate_proj", .up = "up_proj", .down = "down_proj"};
  common.by_projection = !source.has_module(common.of(0, common.gate)) &&
                         source.has_module(cat(module, ".experts.", common.gate, ".0"));
  return common;
}

Result<moe::ExpertWeights> load_per_expert(WeightSource& source, const Config& config,
                                           const std::string& module) {
  const std::int64_t hidden = config.hidden;
  const std::int64_t width = config.moe.intermediate;
  const ExpertNames names = find_names(source, config.naming, module);
  const auto [rows, columns] = parts_of(source.memory().shard);
  const dist::Range own = own_experts(source.memory().shard, config);
  moe::ExpertWeights experts;
  for (std::int64_t e = 0; e < config.moe.router.experts; ++e) {
    const std::string gate = names.of(e, names.gate);
    const std::string up = names.of(e, names.up);
    const std::string down = names.of(e, names.down);
    if (!own.contains(e)) {
      // All ranks exchange the same of their experts' inputs.
      if (!source.round_inputs_alike(names.of(own.begin, names.down), down))
        return Error(ErrorCode::unsupported,
                     "its inputs are not rounded as those of another rank's experts", down,
                     "quantise the experts of a layer alike");
      for (const std::string& other : {gate, up, down}) source.leave_to_others(other + ".");
      continue;
    }
    MOTLEY_TRY(PartOfWeight gate_part, source.matrix(gate, {width, hidden}, rows));
    MOTLEY_TRY(PartOfWeight up_part, source.matrix(up, {width, hidden}, rows));
    MOTLEY_TRY(PartOfWeight down_part, source.matrix(down, {hidden, width}, columns));
    experts.gate.push_back(std::move(gate_part.own));
    experts.up.push_back(std::move(up_part.own));
    experts.down.push_back(std::move(down_part.own));
  }
  return experts;
}

// The same as quantised tensors of all experts.
Result<moe::ExpertWeights> load_fused_codes(WeightSource& source, const Config& config,
                                            const std::string& module) {
  using Rows = FusedParts::Rows;
  const auto [rows_part, columns_part] = parts_of(source.memory().shard);
  const std::int64_t hidden = config.hidden;
  const std::int64_t width = config.moe.intermediate;
  const std::int64_t count = config.moe.router.experts;
  const dist::Range held = own_experts(source.memory().shard, config);
  moe::ExpertWeights experts;
  for (std::int64_t e = held.begin; e < held.end; ++e) {
    const auto load = [&](std::string_view name, quant::TrueSize size, Rows rows) {
      const std::string own = cat(module, ".experts.", name);
      return part_of(source.matrix(own, size, {.experts = count, .expert = e, .rows = rows}),
                     rows == Rows::all ? columns_part : rows_part, own, source);
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
  const dist::Range own = own_range(source.memory().shard, width);
  const ExpertCuts cuts = parts_of(source.memory().shard);
  const dist::Range held = own_experts(source.memory().shard, config);
  moe::ExpertWeights experts;
  for (std::int64_t e = held.begin; e < held.end; ++e) {
    const tensor::ConstTensor both = gate_up.select(e);
    experts.gate.push_back(quant::Weight::borrow(both.slice(0, own.begin, own.end)));
    experts.up.push_back(quant::Weight::borrow(both.slice(0, width + own.begin, width + own.end)));
    MOTLEY_TRY(quant::Weight down_part,
               cut_weight(down.select(e), cuts.down, source.memory().host));
    experts.down.push_back(std::move(down_part));
  }
  return experts;
}

// Where gate_up_proj [E, H, 2I] has gate's and up's columns.
enum class GateUp : std::uint8_t {
  interleaved,  // gate in the even columns and up in the odd ones
  halves        // gate before up
};

TransposedRows columns_of(GateUp layout, bool up, const dist::Range& own, std::int64_t width) {
  const std::int64_t first = up ? 1 : 0;
  if (layout == GateUp::interleaved)
    return {.first = 2 * own.begin + first, .end = 2 * own.end, .step = 2};
  return {.first = first * width + own.begin, .end = first * width + own.end};
}

// gate_up_proj [E, H, 2I] and down_proj [E, I, H].
Result<moe::ExpertWeights> load_transposed(WeightSource& source, const Config& config,
                                           const std::string& module, GateUp layout) {
  const std::int64_t hidden = config.hidden;
  const std::int64_t width = config.moe.intermediate;
  const std::int64_t count = config.moe.router.experts;
  MOTLEY_TRY(const tensor::ConstTensor gate_up,
             source.tensor(cat(module, ".experts.gate_up_proj"), {count, hidden, 2 * width}));
  MOTLEY_TRY(const tensor::ConstTensor down,
             source.tensor(cat(module, ".experts.down_proj"), {count, width, hidden}));
  const dist::Range own = own_range(source.memory().shard, width);
  const dist::Range held = own_experts(source.memory().shard, config);
  moe::ExpertWeights experts;
  for (std::int64_t e = held.begin; e < held.end; ++e) {
    tensor::Allocator& memory = source.memory().host;
    const tensor::ConstTensor both = gate_up.select(e);
    const auto own_rows = [&](bool up) {
      return transposed_rows(both, columns_of(layout, up, own, width), memory);
    };
    MOTLEY_TRY(quant::Weight gate, own_rows(false));
    MOTLEY_TRY(quant::Weight up, own_rows(true));
    const tensor::ConstTensor down_rows = down.select(e).slice(0, own.begin, own.end);
    MOTLEY_TRY(quant::Weight transposed, transposed_rows(down_rows, {.end = hidden}, memory));
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
  const auto [rows_part, columns_part] = parts_of(source.memory().shard);
  const dist::Range held = own_experts(source.memory().shard, config);
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
    const tensor::ConstTensor scales = both.scales.slice(0, held.begin, held.end);
    const auto bytes = static_cast<std::size_t>(scales.elements());
    if (std::memchr(scales.bytes(), not_a_number, bytes) != nullptr)
      return Error(ErrorCode::bad_file, "a scale that is not finite",
                   cat("tensor ", quote(experts + "_scales")), "download the checkpoint again");
    return both;
  };
  MOTLEY_TRY(const Blocks gate_up, blocks("gate_up_proj", 2 * width, hidden));
  MOTLEY_TRY(const Blocks down, blocks("down_proj", hidden, width));
  moe::ExpertWeights experts;
  for (std::int64_t e = held.begin; e < held.end; ++e) {
    tensor::Allocator& memory = source.memory().host;
    const Blocks both{gate_up.codes.select(e), gate_up.scales.select(e)};
    const Blocks own{down.codes.select(e), down.scales.select(e)};
    const auto part = [&](Result<quant::Weight> whole, const Cut& cut) {
      return part_of(std::move(whole), cut, module + ".experts", source);
    };
    MOTLEY_TRY(quant::Weight gate_weight, part(both.rows(0, 2, memory), rows_part));
    MOTLEY_TRY(quant::Weight up_weight, part(both.rows(1, 2, memory), rows_part));
    MOTLEY_TRY(quant::Weight down_weight, part(own.rows(0, 1, memory), columns_part));
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
  const Shard& shard = source.memory().shard;
  const dist::Range own = own_range(shard, width);
  const dist::Range held = own_experts(shard, config);
  for (std::int64_t e = held.begin; e < held.end; ++e) {
    for (std::int64_t i = e * width + own.begin; i < e * width + own.end; ++i) {
      experts.gate_bias.push_back(gate_up[static_cast<std::size_t>(2 * i)]);
      experts.up_bias.push_back(gate_up[static_cast<std::size_t>(2 * i + 1)]);
    }
  }
  MOTLEY_TRY(const std::vector<float> down_bias,
             source.numbers(cat(module, ".experts.down_proj_bias"), {count, config.hidden}));
  // Of a sum over ranks, once for each expert.
  if (shard.experts.rank == 0)
    experts.down_bias.assign(down_bias.begin() + held.times(config.hidden).begin,
                             down_bias.begin() + held.times(config.hidden).end);
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
  const std::string gate_up = cat(module, ".experts.gate_up_proj");
  const bool fused = source.has(gate_up);
  // transformers saves the same models either way.
  const bool released_form =
      config.naming.released_transposed &&
      source.has(gate_up, {config.moe.router.experts, config.hidden, 2 * config.moe.intermediate});
  const bool in_blocks = source.has(gate_up + "_blocks");
  const bool fused_codes = source.has_fused_codes(gate_up);
  auto loaded = in_blocks ? load_blocks(source, config, module)
                : config.naming.experts_transposed
                    ? load_transposed(source, config, module, GateUp::interleaved)
                : fused_codes   ? load_fused_codes(source, config, module)
                : released_form ? load_transposed(source, config, module, GateUp::halves)
                : fused         ? load_fused(source, config, module)
                                : load_per_expert(source, config, module);
  if (!loaded.ok()) return loaded;
  moe::ExpertWeights& experts = *loaded;
  experts.experts = static_cast<int>(own_experts(source.memory().shard, config).size());
  experts.hidden = config.hidden;
  experts.intermediate = own_range(source.memory().shard, config.moe.intermediate).size();
  if (const Cut cut = parts_of(source.memory().shard).down; cut.columns && !experts.down.empty())
    experts.down_scales =
        quant::cut_scales(experts.down[0].view().inputs,
                          {config.moe.intermediate, cut.columns->begin, cut.column_unit});
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
