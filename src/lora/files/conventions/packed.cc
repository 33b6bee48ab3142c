// Packed parameters. For a parameter with `in` inputs and `out` outputs, E experts and rank r:
//   standard  A [E r, in],   B [out, r E]
//   swapped   A [E r, out],  B [in, r E]:   A_e = (B's columns of e)^T,  B_e = (A's rows of e)^T
// Rows of A run e * r + rank. Columns of B run rank * E + e, or e * r + rank (expert-major).

#include "lora/files/conventions/packed.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "base/cat.h"

namespace motley::lora {

namespace {

using Item = Unit::Item;

struct Packed {
  const Unit* unit = nullptr;
  ExpertSpecs specs;
  bool gate_up = false;
  std::string parameter;  // "model.layers.0.mlp.experts.gate_up_proj"
  std::int64_t in = 0;
  std::int64_t out = 0;

  const Item& a() const { return *unit->part(Part::a); }
  const Item& b() const { return *unit->part(Part::b); }
  std::int64_t a_columns() const { return a().entry->shape[1]; }
  std::int64_t b_rows() const { return b().entry->shape[0]; }
  bool fits_standard() const { return a_columns() == in && b_rows() == out; }
  bool fits_swapped() const { return a_columns() == out && b_rows() == in; }
};

void set_parameter(Packed& packed, bool gate_up) {
  packed.gate_up = gate_up;
  packed.parameter = cat(packed.unit->path, gate_up ? ".gate_up_proj" : ".down_proj");
  packed.in = gate_up ? packed.specs.hidden() : packed.specs.intermediate();
  packed.out = gate_up ? 2 * packed.specs.intermediate() : packed.specs.hidden();
}

// Finds the parameter to which factors directly under `experts` belong if they occur alone: the one
// that the configuration names, else the one that their shapes allow.
Result<void> find_parameter(Packed& packed, const Config& config) {
  std::array<bool, 2> named{};
  std::array<bool, 2> fits{};
  for (const bool gate_up : {false, true}) {
    set_parameter(packed, gate_up);
    named[gate_up ? 1 : 0] = names_module(config.target_parameters, packed.parameter);
    fits[gate_up ? 1 : 0] = packed.fits_standard() || packed.fits_swapped();
  }
  if (named[0] != named[1]) {
    set_parameter(packed, named[1]);
    return {};
  }
  if (fits[0] == fits[1] && fits[0]) {
    return bad_tensor(packed.a(), "could be gate_up_proj's or down_proj's",
                      "name one of them in target_parameters of adapter_config.json");
  }
  set_parameter(packed, fits[1]);
  return {};
}

Result<void> check_shapes(const Packed& packed, const Config& config) {
  const std::int64_t experts = packed.specs.experts();
  const std::int64_t rows = packed.a().entry->shape[0];
  if (rows % experts != 0 || rows == 0) {
    return bad_tensor(packed.a(),
                      cat("has ", rows, " rows, which do not divide by ", experts, " experts"));
  }
  const std::int64_t columns = packed.b().entry->shape[1];
  if (columns % experts != 0) {
    return bad_tensor(
        packed.b(), cat("has ", columns, " columns, which do not divide by ", experts, " experts"));
  }
  return check_rank(packed.a(), rows / experts, packed.b(), columns / experts,
                    config.rank_of(packed.parameter));
}

Result<void> check_widths(const Packed& packed) {
  if (packed.fits_standard() || packed.fits_swapped()) return {};
  const bool a_fits = packed.a_columns() == packed.in || packed.a_columns() == packed.out;
  const Item& wrong = a_fits ? packed.b() : packed.a();
  return bad_tensor(wrong, cat("is ", to_string(wrong.entry->shape), ", and ",
                               packed.gate_up ? "gate_up_proj" : "down_proj", " has ", packed.in,
                               " inputs and ", packed.out, " outputs"));
}

// Parses the three numbers of "0.18.1", "0.20.1.dev0" or "0.19.0@commit".
std::optional<std::array<int, 3>> parse_version(std::string_view text) {
  std::array<int, 3> version{};
  const char* at = text.data();
  const char* const end = at + text.size();
  for (std::size_t i = 0; i < 3; ++i) {
    const auto [rest, error] = std::from_chars(at, end, version[i]);
    if (error != std::errc() || version[i] < 0) return std::nullopt;
    at = rest;
    if (i < 2) {
      if (at == end || *at != '.') return std::nullopt;
      ++at;
    }
  }
  return version;
}

// Releases up to 0.18 take the first dimension of a parameter as its inputs, unless the module is
// stored transposed; 0.19.0 swaps both kinds. Later ones swap none, but know that a module is
// transposed only from transformers 5, whose version the file does not name.
std::optional<bool> swapped_by_version(std::string_view text, bool transposed) {
  const auto version = parse_version(text);
  if (!version) return std::nullopt;
  if (*version < std::array{0, 19, 0}) return !transposed;
  if (*version == std::array{0, 19, 0}) return true;
  if (transposed) return std::nullopt;
  return false;
}

Error unknown_orientation(const Packed& packed, std::string_view version, bool transposed) {
  if (parse_version(version)) {
    return bad_tensor(packed.a(),
                      cat("is square, and PEFT ", version, " does not say which way it lies"),
                      "give orientation= with the adapter: made with transformers 4: swapped, "
                      "5: standard");
  }
  return bad_tensor(packed.a(),
                    "is square, and no peft_version in adapter_config.json says which way it lies",
                    cat("give orientation=standard or orientation=swapped with the adapter; a file "
                        "of PEFT 0.17, which wrote no peft_version, is ",
                        transposed ? "standard" : "swapped"));
}

// One answer for the whole file: from shapes if they tell, else from the user's option, else from
// the version of PEFT.
Result<bool> find_orientation(const std::vector<Packed>& all, const Builder& builder) {
  const Packed* standard = nullptr;
  const Packed* swapped = nullptr;
  for (const Packed& packed : all) {
    if (packed.fits_standard() == packed.fits_swapped()) continue;
    (packed.fits_standard() ? standard : swapped) = &packed;
  }
  if (standard != nullptr && swapped != nullptr) {
    return bad_tensor(swapped->a(), cat("has in and out exchanged, and tensor ",
                                        quote(standard->a().name()), " has not"));
  }
  const Orientation given = builder.options.orientation;
  if (standard != nullptr || swapped != nullptr) {
    const bool is_swapped = swapped != nullptr;
    if (given != Orientation::automatic && (given == Orientation::swapped) != is_swapped) {
      const Packed& seen = is_swapped ? *swapped : *standard;
      return Error(ErrorCode::invalid_argument,
                   cat("the orientation is ", is_swapped ? "swapped" : "standard",
                       " by the shapes, and another was asked for"),
                   place_of(seen.a()), "leave orientation= out");
    }
    return is_swapped;
  }
  if (given != Orientation::automatic) return given == Orientation::swapped;
  const std::string& version = builder.config.peft_version;
  const bool transposed = builder.base.experts_transposed();
  const auto by_version = swapped_by_version(version, transposed);
  if (by_version) return *by_version;
  return unknown_orientation(all.front(), version, transposed);
}

Result<void> unpack(Builder& builder, const Packed& packed, bool swapped, bool expert_major) {
  const ExpertSpecs& specs = packed.specs;
  const std::int64_t experts = specs.experts();
  const std::int64_t rank = packed.a().entry->shape[0] / experts;
  const Matrix a = view_matrix(packed.a(), experts * rank, packed.a_columns());
  MOTLEY_TRY(const Matrix b, read_matrix(packed.b(), packed.b_rows(), experts * rank));
  const float scale = builder.config.scale_of(packed.parameter);
  const GateUpRows rows{builder.base.gate_up_interleaved(), specs.intermediate()};
  for (std::int64_t e = 0; e < experts; ++e) {
    // The factors over r: from_a is wide, from_b is tall.
    Matrix from_a = a.rows_between(e * rank, (e + 1) * rank);
    Matrix from_b{b.rows, rank, std::vector<float>(static_cast<std::size_t>(b.rows * rank))};
    for (std::int64_t row = 0; row < b.rows; ++row) {
      for (std::int64_t r = 0; r < rank; ++r) {
        const std::int64_t column = expert_major ? e * rank + r : r * experts + e;
        from_b.values[static_cast<std::size_t>(row * rank + r)] = b.row(row)[column];
      }
    }
    if (swapped) {
      Matrix was_a = transposed(from_a);
      from_a = transposed(from_b);
      from_b = std::move(was_a);
    }
    Factors factors;
    factors.rank = static_cast<int>(rank);
    factors.scale = scale;
    factors.a = builder.add(std::move(from_a));
    const int expert = static_cast<int>(e);
    if (!packed.gate_up) {
      factors.b = builder.add(std::move(from_b));
      MOTLEY_TRY_VOID(put_expert(builder, *specs.down, expert, factors, packed.a()));
      continue;
    }
    for (const bool up : {false, true}) {
      factors.b = builder.add(take_gate_up_rows(from_b, rows, up));
      MOTLEY_TRY_VOID(
          put_expert(builder, up ? *specs.up : *specs.gate, expert, factors, packed.a()));
    }
  }
  return {};
}

}  // namespace

Result<void> build_packed(Builder& builder, const Units& units) {
  std::vector<Packed> all;
  for (const auto& [module, unit] : units) {
    if (module.form != Form::packed && module.form != Form::packed_inner) continue;
    MOTLEY_TRY_VOID(require_both(unit.part(Part::a), unit.part(Part::b), "lora_B", "lora_A"));
    Packed packed;
    packed.unit = &unit;
    const auto spec = [&](Projection projection) {
      return builder.sites.find(Site{module.site.layer, projection});
    };
    packed.specs = {spec(Projection::expert_gate), spec(Projection::expert_up),
                    spec(Projection::expert_down)};
    for (const Item* item : {&packed.a(), &packed.b()}) {
      if (item->entry->shape.rank() != 2)
        return bad_tensor(*item, cat("is ", to_string(item->entry->shape), ", not a matrix"));
    }
    // Of two wrapped parameters the inner one is gate_up.
    const Module inner{module.site, Form::packed_inner, 0};
    if (module.form == Form::packed_inner) {
      set_parameter(packed, true);
    } else if (units.contains(inner)) {
      set_parameter(packed, false);
    } else {
      MOTLEY_TRY_VOID(find_parameter(packed, builder.config));
    }
    MOTLEY_TRY_VOID(check_shapes(packed, builder.config));
    MOTLEY_TRY_VOID(check_widths(packed));
    all.push_back(std::move(packed));
  }
  if (all.empty()) return {};
  MOTLEY_TRY(const bool swapped, find_orientation(all, builder));
  if (builder.numbers == Numbers::to_come) return {};
  BColumns columns = builder.options.b_columns;
  if (columns == BColumns::automatic) columns = builder.config.b_columns;
  const bool expert_major = columns == BColumns::expert_major;
  for (const Packed& packed : all) MOTLEY_TRY_VOID(unpack(builder, packed, swapped, expert_major));
  builder.adapter.convention = Convention::packed;
  builder.adapter.swapped = swapped;
  builder.adapter.expert_major = expert_major;
  return {};
}

}  // namespace motley::lora
