#include "check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

namespace motley::bench::HALF_STEP_NAMESPACE {
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
  Reference(const WeightSet& set, const std::vector<std::uint32_t>& log, int rows)
      : set_(set), log_(log), at_{rows} {}

  double cell(int at) const {
    float value = 0;
    std::memcpy(&value, &log_[static_cast<std::size_t>(at)], sizeof value);
    return static_cast<double>(value);
  }
  double bf16_cell(int at) const {
    const std::uint32_t bits = log_[static_cast<std::size_t>(at)] << 16;
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    return static_cast<double>(value);
  }

  void add_row(int row, const Row& attended, const Row& residual, Errors& errors) {
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
    for (int i = 0; i < projected; ++i)
      errors.out.add(bf16_cell(at_.out() + row * projected + i),
                     normed.scale * wanted[static_cast<std::size_t>(i)]);
  }

 private:
  // The experts that the kernel chose, which are the best of its logits, in the order of a row's
  // slots.
  std::vector<int> slots_of(int row) const {
    std::vector<int> order(experts);
    std::iota(order.begin(), order.end(), 0);
    const auto own = [&](int e) { return cell(at_.logits() + row * all_experts + e); };
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return own(a) > own(b); });
    order.resize(chosen);
    std::sort(order.begin(), order.end());
    if (shared_experts != 0) order.push_back(experts);
    return order;
  }
  Row experts_sum(int row, const Row& x, Errors& errors) {
    const Normed normed(x, set_.expert_norm);
    Row logits = reference_product(set_.router, 0, all_experts, normed.values);
    for (int e = 0; e < all_experts; ++e) {
      double& logit = logits[static_cast<std::size_t>(e)];
      logit *= normed.scale;
      errors.logits.add(cell(at_.logits() + row * all_experts + e), logit);
    }
    const std::vector<int> slots = slots_of(row);
    double weights = 0;
    for (int slot = 0; slot < chosen; ++slot)
      weights += std::exp(logits[static_cast<std::size_t>(slots[static_cast<std::size_t>(slot)])]);
    Row sum(hidden);
    for (int slot = 0; slot < taken; ++slot) {
      const int e = slots[static_cast<std::size_t>(slot)];
      const double logit = logits[static_cast<std::size_t>(e)];
      const double weight = e < experts ? std::exp(logit) / weights : 1 / (1 + std::exp(-logit));
      const Row both = reference_product(set_.gate_up, e * 2 * inner, 2 * inner, normed.values);
      Row h(inner);
      for (int i = 0; i < inner; ++i) {
        const double gate = normed.scale * both[static_cast<std::size_t>(i)];
        const double up = normed.scale * both[static_cast<std::size_t>(inner + i)];
        h[static_cast<std::size_t>(i)] = gate / (1 + std::exp(-gate)) * up;
        errors.inner_values.add(bf16_cell(at_.inner_values() + (row * taken + slot) * inner + i),
                                h[static_cast<std::size_t>(i)]);
      }
      const Row part = reference_product(set_.down, e * hidden, hidden, h);
      for (std::size_t i = 0; i < hidden; ++i) sum[i] += weight * part[i];
    }
    return sum;
  }

  const WeightSet& set_;
  const std::vector<std::uint32_t>& log_;
  Log at_;
};

bool check_layer(Runs& runs, const Run& run, int layer, bool prints) {
  const int rows = runs.instance().rows;
  const auto before = runs.projections();
  const auto residual = runs.residual();
  std::string failure;
  const auto log = runs.logged_layer(layer, run, failure);
  if (!failure.empty()) {
    std::printf("check: %s\n", failure.c_str());
    return false;
  }
  Reference reference(runs.set(layer), log, rows);
  Errors errors;
  for (int row = 0; row < rows; ++row) {
    Row attended(attention);
    for (std::size_t i = 0; i < attention; ++i)
      attended[i] = static_cast<double>(
          __bfloat162float(before[static_cast<std::size_t>(row) * projected + i]));
    const auto* const from = residual.data() + static_cast<std::ptrdiff_t>(row) * hidden;
    reference.add_row(row, attended, Row(from, from + hidden), errors);
  }
  const bool good = errors.good();
  if (good && !prints) return true;
  std::printf("check layer %d:", layer);
  errors.print();
  return good;
}

// Where two logs of a launch differ first, in the order in which the values are made.
void print_difference(const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b,
                      std::size_t layer, int rows) {
  const Log at{rows};
  struct Region {
    const char* name;
    int begin;
    int end;
    int row_words;
  };
  const Region regions[] = {{"x", at.x(), at.logits(), hidden},
                            {"logits", at.logits(), at.inner_values(), all_experts},
                            {"h", at.inner_values(), at.sum(), taken * inner},
                            {"sum", at.sum(), at.out(), hidden},
                            {"out", at.out(), at.words(), projected}};
  const std::size_t first = layer * static_cast<std::size_t>(at.words());
  for (const Region& region : regions) {
    int count = 0;
    std::string where;
    for (int i = region.begin; i < region.end; ++i) {
      const std::size_t word = first + static_cast<std::size_t>(i);
      if (a[word] == b[word]) continue;
      char text[80];
      const int in = i - region.begin;
      std::snprintf(text, sizeof text, " %d/%d:%08x-%08x", in / region.row_words,
                    in % region.row_words, a[word], b[word]);
      if (++count <= 4) where += text;
    }
    if (count != 0)
      std::printf(" %s %d of %d (row/column:bits%s)", region.name, count, region.end - region.begin,
                  where.c_str());
  }
}

}  // namespace

bool check(Runs& runs, const Run& run, bool prints) {
  runs.reset();
  bool good = true;
  for (int layer = 0; layer < weight_sets; ++layer)
    good = check_layer(runs, run, layer, prints) && good;
  return good;
}

int count_different_chains(Runs& runs, const std::vector<Run>& ways, int chains) {
  const int rows = runs.instance().rows;
  const auto words = static_cast<std::size_t>(Log{rows}.words());
  std::string failure;
  const auto wanted = runs.logged_chain(ways[0], failure);
  int different = 0;
  for (int i = 0; i < chains; ++i) {
    const auto way = static_cast<std::size_t>(i) % ways.size();
    const auto log = runs.logged_chain(ways[way], failure);
    const auto at = std::mismatch(log.begin(), log.end(), wanted.begin()).first;
    if (at == log.end() && failure.empty()) continue;
    if (++different > 8) continue;
    const auto layer = static_cast<std::size_t>(at - log.begin()) / words;
    std::printf("    chain %d, way %zu: %s layer %zu:", i, way, failure.c_str(), layer);
    if (at != log.end()) print_difference(wanted, log, layer, rows);
    std::printf("\n");
  }
  return different;
}

}  // namespace motley::bench::HALF_STEP_NAMESPACE
