#include "quant/cut_scales.h"

namespace motley::quant {

CutScales cut_scales(const kernels::InputRounding& rounding, const CutInputs& inputs) {
  using Scales = kernels::InputRounding::Scales;
  if (rounding.scales == Scales::row) return {.count = 1};
  const std::int64_t columns = rounding.columns;
  if (rounding.scales != Scales::row_block || inputs.unit % columns == 0) return {};
  return {.count = (inputs.whole + columns - 1) / columns, .first = inputs.begin / columns};
}

}  // namespace motley::quant
