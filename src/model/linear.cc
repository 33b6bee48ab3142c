#include "model/linear.h"

#include "base/cat.h"
#include "quant/upload.h"

namespace motley::model {

namespace {

// Whether contiguous weights can be used as one weight, with rows aligned for vector loads.
bool can_stand_together(const quant::Weight& first, const quant::Weight& other) {
  constexpr std::size_t alignment = 16;
  return other.format() == first.format() && other.in() == first.in() &&
         other.format().scales == quant::Format::Scales::none &&
         other.data_bytes() % alignment == 0;
}

}  // namespace

Result<Linear> load_linear(WeightSource& source, const LinearSpec& spec) {
  Linear linear;
  auto alone = load_linears(source, {{&linear, spec}});
  if (!alone.ok()) return std::move(alone).error();
  return linear;
}

Result<tensor::Buffer> load_linears(WeightSource& source,
                                    std::initializer_list<std::pair<Linear*, LinearSpec>> maps) {
  const Linear* const first = maps.begin()->first;
  bool together = maps.size() > 1;
  std::size_t bytes = 0;
  for (const auto& [linear, spec] : maps) {
    linear->site = spec.site;
    linear->module = spec.module;
    linear->size = spec.size;
    linear->cut = spec.cut;
    MOTLEY_TRY(PartOfWeight loaded, source.matrix(spec.module, spec.size, spec.cut));
    linear->weight = std::move(loaded.own);
    linear->stored = std::move(loaded.whole);
    if (spec.exact_inputs) linear->weight.keep_inputs_exact();
    linear->rounding = linear->weight.view().inputs;
    if (spec.cut.columns)
      linear->cut_scales = quant::cut_scales(
          linear->rounding, {spec.size.in, spec.cut.columns->begin, spec.cut.column_unit});
    if (spec.bias) {
      MOTLEY_TRY(Vector bias,
                 source.vector(cat(spec.module, ".bias"), spec.size.out, spec.cut.rows));
      if (!spec.cut.columns || source.memory().shard.is_first()) linear->bias = std::move(bias);
    }
    together = together && can_stand_together(first->weight, linear->weight);
    bytes += linear->weight.data_bytes();
  }
  tensor::Buffer memory;
  quant::Uploader* const uploader = source.memory().uploader;
  if (uploader == nullptr) return memory;
  if (together) {
    MOTLEY_TRY(memory, source.memory().device.allocate(bytes));
  }
  std::byte* to = memory.data();
  for (const auto& [linear, spec] : maps) {
    quant::Weight own = std::move(linear->weight);
    if (together) {
      MOTLEY_TRY_VOID(uploader->copy(to, own.view().data, own.data_bytes()));
      linear->weight = quant::Weight(
          {.format = own.format(), .size = {.out = own.out(), .in = own.in()}, .data = to});
      to += own.data_bytes();
    } else {
      MOTLEY_TRY(linear->weight,
                 spec.float32_rows ? source.resident_for_float32(own) : source.resident(own));
    }
    // Of a part the whole is kept instead, where there is one.
    if (linear->cut.empty()) linear->stored = std::move(own);
  }
  return memory;
}

}  // namespace motley::model
