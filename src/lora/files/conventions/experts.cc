// Experts one by one (`experts.{e}.gate_proj`), all in one three-dimensional tensor (`experts.w1`,
// whose first dimension is E, or 1 for a shared factor), and a mixture in which only the shared
// factor has three dimensions.

#include <array>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/cat.h"
#include "lora/files/conventions/builder.h"
#include "lora/files/conventions/packed.h"

namespace motley::lora {

Result<void> put_expert(Builder& builder, const SiteSpec& spec, int expert, const Factors& factors,
                        const Unit::Item& item) {
  Factors& place = builder.at(spec).factors[static_cast<std::size_t>(expert)];
  if (place.present()) {
    return bad_tensor(item, cat("says once more what another tensor says of expert ", expert,
                                " of ", to_string(spec.site)));
  }
  place = factors;
  return {};
}

Matrix take_gate_up_rows(const Matrix& both, const GateUpRows& rows, bool up) {
  const auto from = [&](std::int64_t row) { return up ? rows.up(row) : rows.gate(row); };
  if (!rows.interleaved) return both.rows_between(from(0), from(0) + rows.intermediate);
  Matrix part{
      .rows = rows.intermediate,
      .columns = both.columns,
      .values = std::vector<float>(static_cast<std::size_t>(rows.intermediate * both.columns))};
  const auto columns = static_cast<std::size_t>(both.columns);
  for (std::int64_t row = 0; row < rows.intermediate; ++row) {
    const std::size_t to = static_cast<std::size_t>(row) * columns;
    both.read(from(row) * both.columns, std::span(part.values).subspan(to, columns));
  }
  return part;
}

namespace {

using Item = Unit::Item;

bool is_empty(const Item* item) { return item != nullptr && item->entry->shape.elements() == 0; }

Result<void> check_dim(const Item& item, int dims, int dim, std::int64_t size,
                       std::string_view what) {
  const tensor::Shape& shape = item.entry->shape;
  if (shape.rank() != dims) {
    return bad_tensor(item, cat("is ", to_string(shape), ", and ", dims, " dimensions are needed"));
  }
  if (shape[dim] != size) {
    return bad_tensor(item, cat("is ", to_string(shape), ", and the base has ", size, " ", what));
  }
  return {};
}

// Factors of all experts in one tensor: one shared matrix, or one for each expert.
class Outer {
 public:
  // The tensor has shape [1 or experts, ...]; item may be null.
  static Result<Outer> read(Builder& builder, const Item* item, std::int64_t experts) {
    Outer outer;
    if (item == nullptr) return outer;
    const tensor::Shape& shape = item->entry->shape;
    if (shape.rank() != 3) {
      return bad_tensor(*item, cat("is ", to_string(shape),
                                   ", and factors of all experts have three dimensions"));
    }
    if (shape[0] != 1 && shape[0] != experts) {
      return bad_tensor(*item, cat("is ", to_string(shape), ", and the first dimension is 1 or ",
                                   experts, ", the number of experts"));
    }
    const Matrix all = view_matrix(*item, shape[0] * shape[1], shape[2]);
    for (std::int64_t e = 0; e < shape[0]; ++e)
      outer.places_.push_back(builder.add(all.rows_between(e * shape[1], (e + 1) * shape[1])));
    return outer;
  }

  int of(int expert) const {
    return places_.size() == 1 ? places_[0] : places_[static_cast<std::size_t>(expert)];
  }

 private:
  std::vector<int> places_;
};

const Unit* find(const Units& units, const Module& module) {
  const auto found = units.find(module);
  return found == units.end() ? nullptr : &found->second;
}

// One projection of a layer's experts, from tensors of its own.
class ProjectionBuilder {
 public:
  ProjectionBuilder(Builder& builder, const Units& units, const SiteSpec& spec)
      : builder_(builder), spec_(spec), outer_(find(units, {spec.site, Form::outer, 0})) {
    for (int e = 0; e < spec.experts; ++e)
      experts_.push_back(find(units, {spec.site, Form::expert, e}));
  }

  Result<void> build() {
    const Item* const a = part(outer_, Part::a);
    const Item* const b = part(outer_, Part::b);
    if (is_empty(a) && is_empty(b)) {
      outer_ = nullptr;  // not trained
    } else {
      MOTLEY_TRY(outer_a_, Outer::read(builder_, a, spec_.experts));
      MOTLEY_TRY(outer_b_, Outer::read(builder_, b, spec_.experts));
    }
    if (outer_ != nullptr) {
      MOTLEY_TRY_VOID(check_outer());
      builder_.adapter.convention = Convention::shared_outer;
    }
    for (int e = 0; e < spec_.experts; ++e) MOTLEY_TRY_VOID(build_expert(e));
    return {};
  }

 private:
  static const Item* part(const Unit* unit, Part part) {
    return unit == nullptr ? nullptr : unit->part(part);
  }

  Result<void> check_outer() {
    const Item* const a = part(outer_, Part::a);
    const Item* const b = part(outer_, Part::b);
    if (a != nullptr) MOTLEY_TRY_VOID(check_dim(*a, 3, 2, spec_.in, "inputs"));
    if (b != nullptr) MOTLEY_TRY_VOID(check_dim(*b, 3, 1, spec_.out, "outputs"));
    bool others = false;
    for (const Unit* unit : experts_) {
      if (unit == nullptr) continue;
      others = true;
      for (const Part which : {Part::a, Part::b}) {
        if (part(unit, which) != nullptr && part(outer_, which) != nullptr) {
          return bad_tensor(*part(unit, which), cat("says once more what tensor ",
                                                    quote(part(outer_, which)->name()), " says"));
        }
      }
    }
    if (!others) MOTLEY_TRY_VOID(require_both(a, b, "lora_B", "lora_A"));
    return {};
  }

  Result<void> build_expert(int expert) {
    const Unit* const own = experts_[static_cast<std::size_t>(expert)];
    const bool outer_alone = part(outer_, Part::a) != nullptr && part(outer_, Part::b) != nullptr;
    if (own == nullptr && !outer_alone) return {};
    const Item* const own_a = part(own, Part::a);
    const Item* const own_b = part(own, Part::b);
    const Item* const a = own_a != nullptr ? own_a : part(outer_, Part::a);
    const Item* const b = own_b != nullptr ? own_b : part(outer_, Part::b);
    MOTLEY_TRY_VOID(require_both(a, b, "lora_B", "lora_A"));
    if (own_a != nullptr && own_b != nullptr && is_empty(own_a) && is_empty(own_b)) return {};
    if (own_a != nullptr) MOTLEY_TRY_VOID(check_dim(*own_a, 2, 1, spec_.in, "inputs"));
    if (own_b != nullptr) MOTLEY_TRY_VOID(check_dim(*own_b, 2, 0, spec_.out, "outputs"));

    const std::int64_t rank = a->entry->shape[own_a != nullptr ? 0 : 1];
    const std::int64_t rank_of_b = b->entry->shape[own_b != nullptr ? 1 : 2];
    const std::string& module = own != nullptr ? own->path : outer_->path;
    MOTLEY_TRY_VOID(check_rank(*a, rank, *b, rank_of_b, builder_.config.rank_of(module)));
    Factors factors;
    factors.rank = static_cast<int>(rank);
    factors.scale = builder_.config.scale_of(module);
    if (own_a == nullptr) {
      factors.a = outer_a_.of(expert);
    } else {
      factors.a = builder_.add(view_matrix(*own_a, rank, spec_.in));
    }
    if (own_b == nullptr) {
      factors.b = outer_b_.of(expert);
    } else {
      factors.b = builder_.add(view_matrix(*own_b, spec_.out, rank));
    }
    if (own != nullptr && outer_ == nullptr) {
      builder_.adapter.convention = own->path.find("_projs.") == std::string::npos
                                        ? Convention::per_expert
                                        : Convention::linears;
    }
    return put_expert(builder_, spec_, expert, factors, *a);
  }

  Builder& builder_;
  const SiteSpec& spec_;
  const Unit* outer_;
  std::vector<const Unit*> experts_;
  Outer outer_a_;
  Outer outer_b_;
};

// experts.gate_up_projs.{e}: A [r, H], B [2 I, r].
Result<void> build_linear(Builder& builder, const Unit& unit, const ExpertSpecs& specs) {
  const Item* const a = unit.part(Part::a);
  const Item* const b = unit.part(Part::b);
  MOTLEY_TRY_VOID(require_both(a, b, "lora_B", "lora_A"));
  MOTLEY_TRY_VOID(check_dim(*a, 2, 1, specs.hidden(), "inputs"));
  MOTLEY_TRY_VOID(check_dim(*b, 2, 0, 2 * specs.intermediate(), "outputs of gate and up"));
  const std::int64_t rank = a->entry->shape[0];
  MOTLEY_TRY_VOID(check_rank(*a, rank, *b, b->entry->shape[1], builder.config.rank_of(unit.path)));
  const Matrix both = view_matrix(*b, 2 * specs.intermediate(), rank);
  Factors factors;
  factors.rank = static_cast<int>(rank);
  factors.scale = builder.config.scale_of(unit.path);
  factors.a = builder.add(view_matrix(*a, rank, specs.hidden()));
  const GateUpRows rows{builder.base.gate_up_interleaved(), specs.intermediate()};
  for (const bool up : {false, true}) {
    factors.b = builder.add(take_gate_up_rows(both, rows, up));
    MOTLEY_TRY_VOID(
        put_expert(builder, up ? *specs.up : *specs.gate, unit.module.expert, factors, *a));
  }
  builder.adapter.convention = Convention::linears;
  return {};
}

// experts.gate_up_proj: A [1 or E, c r, H] with c 1 (gate and up share it) or 2 (gate's rows before
// up's), B [1 or E, 2 I, r].
Result<void> build_outer_gate_up(Builder& builder, const Unit& unit, const ExpertSpecs& specs) {
  const Item* const a = unit.part(Part::a);
  const Item* const b = unit.part(Part::b);
  MOTLEY_TRY_VOID(require_both(a, b, "lora_B", "lora_A"));
  if (is_empty(a) && is_empty(b)) return {};
  MOTLEY_TRY_VOID(check_dim(*a, 3, 2, specs.hidden(), "inputs"));
  MOTLEY_TRY_VOID(check_dim(*b, 3, 1, 2 * specs.intermediate(), "outputs of gate and up"));
  const std::int64_t rank = b->entry->shape[2];
  const std::int64_t rows_of_a = a->entry->shape[1];
  const bool stacked = rank > 0 && rows_of_a == 2 * rank;
  MOTLEY_TRY_VOID(
      check_rank(*a, stacked ? rank : rows_of_a, *b, rank, builder.config.rank_of(unit.path)));
  MOTLEY_TRY(const Outer outer_a, Outer::read(builder, a, specs.experts()));
  MOTLEY_TRY(const Outer outer_b, Outer::read(builder, b, specs.experts()));

  const GateUpRows rows{builder.base.gate_up_interleaved(), specs.intermediate()};
  // A shared factor is split once: maps the index of the whole to those of gate's and up's parts.
  std::map<int, std::array<int, 2>> cut_a;
  std::map<int, std::array<int, 2>> cut_b;
  const auto matrix = [&](int place) -> const Matrix& {
    return builder.adapter.matrices[static_cast<std::size_t>(place)];
  };
  for (int e = 0; e < specs.experts(); ++e) {
    const int whole_a = outer_a.of(e);
    const int whole_b = outer_b.of(e);
    if (!cut_a.contains(whole_a)) {
      std::array<int, 2> parts{whole_a, whole_a};
      if (stacked) {
        for (const int up : {0, 1}) {
          Matrix part = matrix(whole_a).rows_between(up * rank, (up + 1) * rank);
          parts[static_cast<std::size_t>(up)] = builder.add(std::move(part));
        }
      }
      cut_a[whole_a] = parts;
    }
    if (!cut_b.contains(whole_b)) {
      Matrix gate = take_gate_up_rows(matrix(whole_b), rows, false);
      Matrix up = take_gate_up_rows(matrix(whole_b), rows, true);
      const int gate_place = builder.add(std::move(gate));
      cut_b[whole_b] = {gate_place, builder.add(std::move(up))};
    }
    for (const int up : {0, 1}) {
      Factors factors;
      factors.rank = static_cast<int>(rank);
      factors.scale = builder.config.scale_of(unit.path);
      factors.a = cut_a[whole_a][static_cast<std::size_t>(up)];
      factors.b = cut_b[whole_b][static_cast<std::size_t>(up)];
      MOTLEY_TRY_VOID(put_expert(builder, up == 1 ? *specs.up : *specs.gate, e, factors, *a));
    }
  }
  builder.adapter.convention = Convention::shared_outer;
  return {};
}

}  // namespace

Result<void> build_experts(Builder& builder, const Units& units) {
  std::set<Site> own;  // sites with tensors of their own
  for (const auto& [module, unit] : units) {
    const auto spec = [&](Projection projection) {
      return builder.sites.find(Site{module.site.layer, projection});
    };
    const ExpertSpecs specs{spec(Projection::expert_gate), spec(Projection::expert_up),
                            spec(Projection::expert_down)};
    switch (module.form) {
      case Form::expert:
      case Form::outer:
        own.insert(module.site);
        break;
      case Form::linear:
        MOTLEY_TRY_VOID(build_linear(builder, unit, specs));
        break;
      case Form::outer_gate_up:
        MOTLEY_TRY_VOID(build_outer_gate_up(builder, unit, specs));
        break;
      case Form::plain:
      case Form::some_rows:
      case Form::packed:
      case Form::packed_inner:
        break;
    }
  }
  for (const Site site : own) {
    MOTLEY_TRY_VOID(ProjectionBuilder(builder, units, *builder.sites.find(site)).build());
  }
  return build_packed(builder, units);
}

}  // namespace motley::lora
