#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "base/cat.h"
#include "lora/files/conventions/builder.h"

namespace motley::lora {

Result<Matrix> dora_gain(const BaseView& base, const DoraParams& params) {
  constexpr std::int64_t rows_at_once = 64;
  const SiteDelta& delta = params.delta;
  const Factors& factors = delta.factors[0];
  Matrix gain{1, delta.out, std::vector<float>(static_cast<std::size_t>(delta.out))};
  std::vector<float> rows(static_cast<std::size_t>(rows_at_once * delta.in));
  const std::vector<float> a = params.a.numbers();
  const std::vector<float> b = params.b.numbers();
  for (std::int64_t begin = 0; begin < delta.out; begin += rows_at_once) {
    const std::int64_t end = std::min(begin + rows_at_once, delta.out);
    if (params.weight == nullptr) {
      base.rows(delta.site, 0, begin, end, rows.data());
    } else {
      const auto count = static_cast<std::size_t>((end - begin) * delta.in);
      params.weight->read(begin * delta.in, std::span(rows).first(count));
    }
    for (std::int64_t out = begin; out < end; ++out) {
      float* const row = rows.data() + (out - begin) * delta.in;
      for (int r = 0; r < factors.rank; ++r) {
        const float by = factors.scale * b[static_cast<std::size_t>(out * factors.rank + r)];
        const float* const from = a.data() + r * delta.in;
        for (std::int64_t k = 0; k < delta.in; ++k) row[k] += by * from[k];
      }
      double sum = 0;
      for (std::int64_t k = 0; k < delta.in; ++k) sum += double{row[k]} * double{row[k]};
      const auto at = static_cast<std::size_t>(out);
      gain.values[at] = static_cast<float>(double{params.magnitude.values[at]} / std::sqrt(sum));
      if (!std::isfinite(gain.values[at])) {
        return bad_tensor(params.item,
                          cat("row ", out, " of the weight that it scales has no length"));
      }
    }
  }
  return gain;
}

}  // namespace motley::lora
