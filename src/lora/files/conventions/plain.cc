#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "base/cat.h"
#include "lora/files/conventions/builder.h"

namespace motley::lora {

namespace {

using Item = Unit::Item;

// Whether a replacement equals the base's numbers: PEFT writes such copies beside factors of
// embeddings and heads.
bool equals_base(const BaseView& base, Site site, const Matrix& table) {
  constexpr std::int64_t rows_at_once = 64;
  std::vector<float> rows(static_cast<std::size_t>(rows_at_once * table.columns));
  std::vector<float> read(rows.size());
  for (std::int64_t begin = 0; begin < table.rows; begin += rows_at_once) {
    const std::int64_t end = std::min(begin + rows_at_once, table.rows);
    const auto count = static_cast<std::size_t>((end - begin) * table.columns);
    base.rows(site, 0, begin, end, rows.data());
    table.read(begin * table.columns, std::span(read).first(count));
    if (!std::equal(read.begin(), read.begin() + static_cast<std::ptrdiff_t>(count), rows.begin()))
      return false;
  }
  return true;
}

// For the embedding, in -> out is vocabulary -> hidden, and its table is [vocabulary, hidden].
std::pair<std::int64_t, std::int64_t> table_shape(const SiteSpec& spec) {
  if (spec.site.projection == Projection::embed) return {spec.in, spec.out};
  return {spec.out, spec.in};
}

Result<void> build_replacement(Builder& builder, const Unit& unit, const Units& units) {
  const Item& item = *unit.part(Part::weight);
  const SiteSpec& spec = *builder.sites.find(unit.module.site);
  const auto [rows, columns] = table_shape(spec);
  const tensor::Shape& shape = item.entry->shape;
  if (shape.rank() != 2 || shape[1] != columns) {
    return bad_tensor(
        item, cat("is ", to_string(shape), ", and the base's is [", rows, ", ", columns, "]"));
  }
  if (shape[0] != rows) {
    return unsupported_tensor(item, cat("has ", shape[0], " rows, and the base has ", rows,
                                        ": another vocabulary is not supported"));
  }
  if (builder.numbers == Numbers::to_come) return {};
  Matrix table = view_matrix(item, rows, columns);
  if (equals_base(builder.base, spec.site, table)) return {};
  const int place = builder.add(std::move(table));
  builder.at(spec).replaced = place;

  // A module under modules_to_save is a separate copy. Anything else is the base's own tensor, so
  // modules tied to it follow.
  const bool own_copy = !unit.weight_in_base_layer && !builder.config.ties_weights &&
                        names_module(builder.config.modules_to_save, unit.path);
  if (!builder.base.tied_embeddings() || own_copy) return {};
  const Site twin{
      -1, spec.site.projection == Projection::embed ? Projection::lm_head : Projection::embed};
  const auto other = units.find(Module{twin, Form::plain, 0});
  if (other != units.end() && other->second.part(Part::weight) != nullptr) return {};
  const SiteSpec* twin_spec = builder.sites.find(twin);
  if (twin_spec != nullptr) builder.at(*twin_spec).replaced = place;
  return {};
}

Result<int> read_vector(Builder& builder, const Item& item, std::int64_t length) {
  std::int64_t longest = 1;
  for (const std::int64_t dim : item.entry->shape.dims()) longest = std::max(longest, dim);
  if (item.entry->shape.elements() != length || longest != length) {
    return bad_tensor(item, cat("is ", to_string(item.entry->shape), ", and the module has ",
                                length, " outputs"));
  }
  MOTLEY_TRY(Matrix vector, read_matrix(item, 1, length));
  return builder.add(std::move(vector));
}

Result<void> check_matrix(const Item& item, std::string_view what, int dim, std::int64_t size) {
  const tensor::Shape& shape = item.entry->shape;
  if (shape.rank() != 2) return bad_tensor(item, cat("is ", to_string(shape), ", not a matrix"));
  if (shape[dim] != size) {
    return bad_tensor(item, cat("is ", to_string(shape), ", and the base has ", size, " ", what));
  }
  return {};
}

// Reads A and B of a module; returns whether it has any.
Result<bool> build_factors(Builder& builder, const Unit& unit, std::string_view module) {
  const SiteSpec& spec = *builder.sites.find(unit.module.site);
  const bool embedding = spec.site.projection == Projection::embed;
  const Item* const a = unit.part(embedding ? Part::embedding_a : Part::a);
  const Item* const b = unit.part(embedding ? Part::embedding_b : Part::b);
  MOTLEY_TRY_VOID(require_both(a, b, embedding ? "lora_embedding_B" : "lora_B",
                               embedding ? "lora_embedding_A" : "lora_A"));
  if (a == nullptr) return false;
  // Some tools write untrained factors as empty tensors.
  if (a->entry->shape.elements() == 0 && b->entry->shape.elements() == 0) return false;
  MOTLEY_TRY_VOID(check_matrix(*a, embedding ? "tokens" : "inputs", 1, spec.in));
  MOTLEY_TRY_VOID(check_matrix(*b, "outputs", 0, spec.out));
  const std::int64_t rank = a->entry->shape[0];
  MOTLEY_TRY_VOID(check_rank(*a, rank, *b, b->entry->shape[1], builder.config.rank_of(module)));
  const Matrix whole_a = view_matrix(*a, rank, spec.in);
  const int place_a = builder.add(embedding ? transposed(whole_a) : whole_a);
  const int place_b = builder.add(view_matrix(*b, spec.out, rank));
  builder.at(spec).factors[0] = {place_a, place_b, static_cast<int>(rank),
                                 builder.config.scale_of(module)};
  return true;
}

Result<void> build_module(Builder& builder, const Unit& unit) {
  const SiteSpec& spec = *builder.sites.find(unit.module.site);
  // PEFT names the parameter instead of its module where it wraps parameters.
  const std::string parameter = cat(unit.path, ".weight");
  const bool wrapped = names_module(builder.config.target_parameters, parameter);
  MOTLEY_TRY(const bool adapted, build_factors(builder, unit, wrapped ? parameter : unit.path));

  const bool dense = spec.site.projection != Projection::embed && !wrapped;
  const Item* const magnitude = unit.part(Part::magnitude);
  const Item* const b_bias = unit.part(Part::b_bias);
  for (const Item* item : {magnitude, b_bias}) {
    if (item != nullptr && !adapted) return bad_tensor(*item, "has no lora_A and lora_B beside it");
  }
  if (adapted && dense) {
    if (builder.config.dora && magnitude == nullptr)
      return bad_tensor(*unit.part(Part::a), "DoRA, and lora_magnitude_vector is missing");
    if (builder.config.lora_bias && b_bias == nullptr)
      return bad_tensor(*unit.part(Part::b), "lora_bias, and lora_B.bias is missing");
  }
  if (b_bias != nullptr) {
    if (!builder.config.lora_bias)
      return bad_tensor(*b_bias, "a bias, and adapter_config.json does not say lora_bias");
    MOTLEY_TRY(const int place, read_vector(builder, *b_bias, spec.out));
    builder.at(spec).lora_bias = place;
  }
  if (const Item* const bias = unit.part(Part::bias)) {
    // No family has one there, and absorbed attention cannot apply it.
    if (spec.site.projection == Projection::kv_b)
      return unsupported_tensor(*bias, "a bias on kv_b_proj",
                                "no base has one there; save the adapter without it");
    MOTLEY_TRY(const int place, read_vector(builder, *bias, spec.out));
    builder.at(spec).replaced_bias = place;
  }
  if (magnitude != nullptr) {
    MOTLEY_TRY(const int place, read_vector(builder, *magnitude, spec.out));
    if (builder.numbers == Numbers::to_come) return {};
    SiteDelta& delta = builder.at(spec);
    auto& matrices = builder.adapter.matrices;
    const auto matrix = [&](int at) -> const Matrix& {
      return matrices[static_cast<std::size_t>(at)];
    };
    const DoraParams params{.delta = delta,
                            .a = matrix(delta.factors[0].a),
                            .b = matrix(delta.factors[0].b),
                            .weight = delta.replaced < 0 ? nullptr : &matrix(delta.replaced),
                            .magnitude = matrix(place),
                            .item = *magnitude};
    MOTLEY_TRY(Matrix gain, dora_gain(builder.base, params));
    matrices[static_cast<std::size_t>(place)] = std::move(gain);
    delta.gain = place;
  }
  return {};
}

}  // namespace

Result<void> build_plain(Builder& builder, const Units& units) {
  // Replacements first, because gains are relative to them.
  for (const auto& [module, unit] : units) {
    if (module.form == Form::plain && unit.part(Part::weight) != nullptr)
      MOTLEY_TRY_VOID(build_replacement(builder, unit, units));
  }
  for (const auto& [module, unit] : units) {
    if (module.form == Form::plain) MOTLEY_TRY_VOID(build_module(builder, unit));
  }
  const auto embed = builder.deltas.find(Site{-1, Projection::embed});
  const auto head = builder.deltas.find(Site{-1, Projection::lm_head});
  const auto adapted = [&](auto found) {
    return found != builder.deltas.end() && found->second.factors[0].present();
  };
  if (builder.config.ties_weights && builder.base.tied_embeddings() &&
      adapted(embed) != adapted(head)) {
    return Error(ErrorCode::unsupported,
                 cat("ensure_weight_tying with factors of the ",
                     adapted(embed) ? "embedding" : "head", " alone"),
                 "adapter_config.json",
                 adapted(embed)
                     ? "PEFT 0.18 ties no head that is not targeted: target lm_head too, or train "
                       "with PEFT 0.19 or later"
                     : "PEFT 0.18 ties no embedding that is not targeted: target embed_tokens too, "
                       "or train with PEFT 0.19 or later");
  }
  return {};
}

}  // namespace motley::lora
