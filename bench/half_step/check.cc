#include "check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

namespace motley::bench::half_step {
namespace {

using Row = std::vector<double>;

double rounded(double value) {
  return static_cast<double>(__bfloat162float(__float2bfloat16_rn(static_cast<float>(value))));
}

struct Error {
  double square = 0;
  double reference = 0;
  double largest = 0;
  long count = 0;
  void add(double value, double wanted) {
    const double difference = value - wanted;
    square += difference * difference;
    reference += wanted * wanted;
    largest = std::isfinite(value) ? std::max(largest, std::fabs(difference)) : HUGE_VAL;
    ++count;
  }
  double relative() const { return std::sqrt(square / reference); }
  double largest_relative() const {
    return largest / std::sqrt(reference / static_cast<double>(count));
  }
  bool good(double limit) const { return relative() < limit && largest_relative() < 12 * limit; }
  // The root mean square, and the largest error over the values' root mean square.
  void print(const char* name, double limit) const {
    std::printf(" %s %.1e (%.1e)%s", name, relative(), largest_relative(),
                good(limit) ? "" : " WRONG");
  }
};

struct Errors {
  Error x, logits, inner_values, sum, out;
  bool good() const {
    return x.good(1e-5) && logits.good(1e-3) && inner_values.good(5e-3) && sum.good(5e-3) &&
           out.good(5e-3);
  }
  void print() const {
    x.print("x", 1e-5);
    logits.print("logits", 1e-3);
    inner_values.print("h", 5e-3);
    sum.print("sum", 5e-3);
    out.print("out", 5e-3);
    std::printf("\n");
  }
};

// A row of x as the products read it, and the norm's scale.
struct Normed {
  Row values;
  double scale = 0;
  Normed(const Row& x, const std::vector<float>& weight) : values(hidden) {
    double squares = 0;
    for (std::size_t i = 0; i < hidden; ++i) {
      squares += x[i] * x[i];
      values[i] = rounded(x[i] * static_cast<double>(weight[i]));
    }
    scale = 1 / std::sqrt(squares / hidden + static_cast<double>(norm_eps));
  }
};

class Reference {
 public:
  Reference(const WeightSet& set, const std::vector<std::uint32_t>& cells, int rows)
      : set_(set), cells_(cells), at_{rows} {}

  double cell(int at) const {
    float value = 0;
    std::memcpy(&value, &cells_[static_cast<std::size_t>(at)], sizeof value);
    return static_cast<double>(value);
  }
  double inner_value(int pair, int i) const {
    const int at = at_.inner_values() + (pair * inner + i) / 2;
    const std::uint32_t word = cells_[static_cast<std::size_t>(at)];
    const std::uint32_t bits = i % 2 == 0 ? word << 16 : word & 0xFFFF0000;
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    return static_cast<double>(value);
  }

  void add_row(int row, const Row& attended, const Row& residual, const Bf16* out, Errors& errors) {
    Row x = reference_product(set_.output, 0, hidden, attended);
    for (int i = 0; i < hidden; ++i) {
      x[static_cast<std::size_t>(i)] += residual[static_cast<std::size_t>(i)];
      errors.x.add(cell(at_.x() + row * hidden + i), x[static_cast<std::size_t>(i)]);
    }
    const Row sum = experts_sum(row, x, errors);
    for (int i = 0; i < hidden; ++i) {
      const auto at = static_cast<std::size_t>(i);
      errors.sum.add(cell(at_.sum() + row * hidden + i) - x[at], sum[at]);
      x[at] += sum[at];
    }
    const Normed normed(x, set_.projection_norm);
    const Row wanted = reference_product(set_.projection, 0, projected, normed.values);
    for (std::size_t i = 0; i < projected; ++i)
      errors.out.add(static_cast<double>(__bfloat162float(out[i])), normed.scale * wanted[i]);
  }

 private:
  // With the experts that the kernel chose, which are the best of its logits.
  Row experts_sum(int row, const Row& x, Errors& errors) {
    const Normed normed(x, set_.expert_norm);
    const Row logits = reference_product(set_.router, 0, experts, normed.values);
    std::vector<int> order(experts);
    std::iota(order.begin(), order.end(), 0);
    const auto own = [&](int e) { return cell(at_.logits() + row * experts + e); };
    std::ranges::sort(order,
                      [&](int a, int b) { return own(a) != own(b) ? own(a) > own(b) : a < b; });
    for (int e = 0; e < experts; ++e)
      errors.logits.add(own(e), normed.scale * logits[static_cast<std::size_t>(e)]);
    double weights = 0;
    const auto weight_of = [&](int e) {
      return std::exp(normed.scale * logits[static_cast<std::size_t>(e)]);
    };
    for (int slot = 0; slot < chosen; ++slot)
      weights += weight_of(order[static_cast<std::size_t>(slot)]);
    Row sum(hidden);
    for (int slot = 0; slot < chosen; ++slot) {
      const int e = order[static_cast<std::size_t>(slot)];
      const Row both = reference_product(set_.gate_up, e * 2 * inner, 2 * inner, normed.values);
      Row h(inner);
      for (int i = 0; i < inner; ++i) {
        const double gate = normed.scale * both[static_cast<std::size_t>(i)];
        const double up = normed.scale * both[inner + static_cast<std::size_t>(i)];
        h[static_cast<std::size_t>(i)] = gate / (1 + std::exp(-gate)) * up;
        errors.inner_values.add(inner_value(row * chosen + slot, i),
                                h[static_cast<std::size_t>(i)]);
      }
      const Row part = reference_product(set_.down, e * hidden, hidden, h);
      for (std::size_t i = 0; i < hidden; ++i) sum[i] += weight_of(e) / weights * part[i];
    }
    return sum;
  }

  const WeightSet& set_;
  const std::vector<std::uint32_t>& cells_;
  Cells at_;
};

bool check_layer(Runs& runs, const Run& run, int layer, bool prints) {
  const int rows = runs.instance().rows;
  const auto before = runs.projections();
  const auto residual = runs.residual();
  runs.launch_layer(layer, run, nullptr);
  const std::string failure = runs.finish(nullptr);
  if (!failure.empty()) {
    std::printf("check: %s\n", failure.c_str());
    return false;
  }
  const auto cells = runs.used_cells();
  const auto after = runs.projections();
  Reference reference(runs.set(layer), cells, rows);
  Errors errors;
  for (int row = 0; row < rows; ++row) {
    Row attended(attention);
    for (std::size_t i = 0; i < attention; ++i)
      attended[i] = static_cast<double>(
          __bfloat162float(before[static_cast<std::size_t>(row) * projected + i]));
    const auto* const from = residual.data() + static_cast<std::ptrdiff_t>(row) * hidden;
    reference.add_row(row, attended, Row(from, from + hidden),
                      after.data() + static_cast<std::ptrdiff_t>(row) * projected, errors);
  }
  if (errors.good() && !prints) return true;
  std::printf("check layer %d:", layer);
  errors.print();
  return errors.good();
}

}  // namespace

bool check(Runs& runs, const Run& run, bool prints) {
  runs.reset();
  bool good = true;
  for (int layer = 0; layer < weight_sets; ++layer)
    good = check_layer(runs, run, layer, prints) && good;
  return good;
}

}  // namespace motley::bench::half_step
