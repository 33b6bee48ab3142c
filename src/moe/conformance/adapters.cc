#include "moe/conformance/adapters.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "base/cat.h"
#include "moe/conformance/runner.h"

namespace motley::moe::conformance {
namespace {

using lora::Projection;

enum class Kind : std::uint8_t {
  per_expert,    // factors of their own for each expert, in all three projections
  shared_outer,  // one A of gate and up, one B of down, for all experts
  gate_only,
  up_only,
  down_only,
  some_experts,  // every other expert has none, and the others have ranks 1 to 4
  zero,          // B is all zeros
};
constexpr std::array kinds{Kind::per_expert, Kind::shared_outer, Kind::gate_only, Kind::up_only,
                           Kind::down_only,  Kind::some_experts, Kind::zero};
static_assert(kinds[Adapters::zero] == Kind::zero);

// Numbers that are exact in FP8 with a power-of-two scale, and so in bf16: pools of every type have
// the same.
int add_matrix(lora::Adapter& adapter, std::int64_t rows, std::int64_t columns, double deviation,
               std::mt19937& random) {
  lora::Matrix matrix{.rows = rows, .columns = columns, .values = {}};
  std::normal_distribution<double> normal(0, 1);
  const double scale = deviation == 0 ? 0 : std::exp2(std::round(std::log2(deviation)));
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    const float number = f8_e4m3::from(static_cast<float>(normal(random))).to_float();
    matrix.values.push_back(static_cast<float>(scale) * number);
  }
  adapter.matrices.push_back(std::move(matrix));
  return static_cast<int>(adapter.matrices.size()) - 1;
}

lora::Adapter make_adapter(const LayerSpec& spec, Kind kind, int rank, unsigned seed) {
  std::mt19937 random(seed);
  lora::Adapter adapter;
  for (const Projection projection :
       {Projection::expert_gate, Projection::expert_up, Projection::expert_down}) {
    if (kind == Kind::gate_only && projection != Projection::expert_gate) continue;
    if (kind == Kind::up_only && projection != Projection::expert_up) continue;
    if (kind == Kind::down_only && projection != Projection::expert_down) continue;
    const bool down = projection == Projection::expert_down;
    lora::SiteDelta delta;
    delta.site = {.layer = 0, .projection = projection};
    delta.in = down ? spec.intermediate : spec.hidden;
    delta.out = down ? spec.hidden : spec.intermediate;
    lora::Factors shared;
    for (int expert = 0; expert < spec.experts; ++expert) {
      lora::Factors factors;
      if (kind == Kind::some_experts && expert % 2 == 0) {
        delta.factors.push_back(factors);
        continue;
      }
      factors.rank = kind == Kind::some_experts ? 1 + expert % 4 : rank;
      factors.scale = 2.0F / std::sqrt(static_cast<float>(factors.rank));
      const bool share_a = kind == Kind::shared_outer && !down && expert > 0;
      const bool share_b = kind == Kind::shared_outer && down && expert > 0;
      const double a_deviation = 1 / std::sqrt(static_cast<double>(delta.in));
      factors.a =
          share_a ? shared.a : add_matrix(adapter, factors.rank, delta.in, a_deviation, random);
      factors.b = share_b ? shared.b
                          : add_matrix(adapter, delta.out, factors.rank,
                                       kind == Kind::zero ? 0.0 : 0.5, random);
      if (expert == 0) shared = factors;
      delta.factors.push_back(factors);
      adapter.largest_rank = std::max(adapter.largest_rank, factors.rank);
    }
    adapter.sites.push_back(std::move(delta));
  }
  adapter.version = lora::hash_content(adapter);
  return adapter;
}

}  // namespace

Adapters::Adapters(const LayerSpec& spec, DType dtype, lora::Layout layout) {
  constexpr std::array ranks{8, 16, 3, 5, 17, 0, 8};
  pool_ = lora::Pool::create(device(), {.bytes = 8 << 20,
                                        .page_bytes = 16 << 10,
                                        .dtype = dtype,
                                        .experts = layout,
                                        .directory = true,
                                        .poison = true})
              .value();
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    adapters_.push_back(make_adapter(spec, kinds[i], ranks[i], static_cast<unsigned>(40 + i)));
    handles_.push_back(pool_->load(cat("adapter ", i), adapters_.back()).value());
  }
}

lora::Mix Adapters::mix(const std::vector<Choice>& choices) const {
  std::vector<lora::Mix::Part> parts;
  for (const Choice& choice : choices)
    parts.push_back({.adapter = handles_[choice.adapter], .scale = choice.scale});
  return lora::Mix::make(parts).value();
}

std::vector<Term> Adapters::terms(const std::vector<Choice>& choices) const {
  std::vector<Term> terms;
  for (const Choice& choice : choices)
    terms.push_back({.adapter = &adapters_[choice.adapter], .scale = choice.scale});
  return terms;
}

const std::vector<Choices>& all_choices() {
  static const std::vector<Choices> choices{
      {},
      {{0, 1}},
      {{1, 1}},
      {{2, 1}},
      {{3, 0.5F}},
      {{4, 1}},
      {{5, -1.5F}},
      {{6, 1}},
      {{0, 0.25F}, {1, 2}},
      {{2, 1}, {4, 0.5F}, {3, -1}},
      {{6, 1}, {5, 1}},
  };
  return choices;
}

std::vector<Choices> assign_choices(std::int64_t tokens, std::size_t first) {
  std::vector<Choices> choices;
  for (std::int64_t token = 0; token < tokens; ++token)
    choices.push_back(
        all_choices()[(first + static_cast<std::size_t>(token) * 7) % all_choices().size()]);
  return choices;
}

}  // namespace motley::moe::conformance
