#include "lora/files/conventions/gather.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

#include "base/cat.h"
#include "tensor/convert.h"

namespace motley::lora {

SiteIndex::SiteIndex(const BaseView& base) {
  for (const SiteSpec& spec : base.sites()) {
    sites_.emplace(spec.site, spec);
    layers_ = std::max(layers_, spec.site.layer + 1);
    // Gate and up may be one tensor, and packed factors have the ranks of all experts.
    longest_dimension_ = std::max({longest_dimension_, 2 * spec.in, 2 * spec.out,
                                   std::int64_t{2} * max_rank * std::max(spec.experts, 1)});
  }
}

const SiteSpec* SiteIndex::find(Site site) const {
  const auto found = sites_.find(site);
  return found == sites_.end() ? nullptr : &found->second;
}

std::string place_of(const Unit::Item& item) { return cat("tensor ", quote(item.name())); }

Error bad_tensor(const Unit::Item& item, std::string_view what, std::string_view fix) {
  return {ErrorCode::bad_file, std::string(what), place_of(item), std::string(fix)};
}

Error unsupported_tensor(const Unit::Item& item, std::string_view what, std::string_view fix) {
  return {ErrorCode::unsupported, std::string(what), place_of(item), std::string(fix)};
}

namespace {

Error missing_site(const Unit::Item& item, const Module& module, const SiteIndex& sites) {
  if (module.site.layer >= sites.layers()) {
    return bad_tensor(item, cat("layers.", module.site.layer, " is beyond the base's ",
                                sites.layers(), " layers"));
  }
  return bad_tensor(item, cat("the base has no ", to_string(module.site)),
                    "load it over the base that it was trained on");
}

Error replaced_module(const Unit::Item& item, std::string_view path) {
  return unsupported_tensor(
      item, cat("the module ", quote(path), " is replaced: only the embedding and the head can be"),
      "give it factors (target_modules or target_parameters) in place of modules_to_save, or merge "
      "the adapter into its base");
}

// Whether a module can have such a part.
Result<void> check_part(const Unit::Item& item, const TensorName& name, const Config& config) {
  const Projection projection = name.module.site.projection;
  const bool table = projection == Projection::embed || projection == Projection::lm_head;
  const bool embedding = projection == Projection::embed;
  if (name.part == Part::trainable_tokens)
    return unsupported_tensor(item, "trainable tokens are not supported");
  if (name.module.form == Form::some_rows) {
    if (name.part == Part::a || name.part == Part::b) return {};
    return unsupported_tensor(item, "parts of in_proj_qkv have lora_A and lora_B only",
                              "save the adapter with in_proj_qkv as one module");
  }
  if (name.module.form != Form::plain) {
    if (name.part == Part::a || name.part == Part::b) return {};
    if (name.part == Part::magnitude)
      return unsupported_tensor(item, "DoRA on experts is not supported");
    if (name.part == Part::b_bias)
      return unsupported_tensor(item, "a bias behind B on experts is not supported");
    if (name.part == Part::weight || name.part == Part::bias)
      return unsupported_tensor(item, "tensors of experts can't be replaced");
    return bad_tensor(item, "factors of an embedding on experts");
  }
  switch (name.part) {
    case Part::a:
    case Part::b:
    case Part::b_bias:
      if (embedding)
        return bad_tensor(item, "an embedding's factors are lora_embedding_A and lora_embedding_B");
      return {};
    case Part::embedding_a:
    case Part::embedding_b:
      if (!embedding) return bad_tensor(item, "factors of an embedding on another module");
      return {};
    case Part::magnitude:
      if (embedding) return unsupported_tensor(item, "DoRA on embeddings is not supported");
      if (!config.dora)
        return bad_tensor(item, "a magnitude, and adapter_config.json does not say use_dora");
      return {};
    case Part::weight:
      if (!table) return replaced_module(item, name.path);
      return {};
    case Part::bias:
      if (embedding) return bad_tensor(item, "an embedding has no bias");
      if (config.bias == Config::Bias::none)
        return bad_tensor(item, "a bias, and adapter_config.json says bias 'none'");
      return {};
    case Part::trainable_tokens:
      break;
  }
  return {};
}

// A tensor's elements as float32; nothing if they are not floating-point numbers.
std::optional<std::vector<float>> widened(const tensor::ConstTensor& tensor) {
  const DType dtype = tensor.dtype();
  if (dtype != DType::f32 && dtype != DType::f16 && dtype != DType::bf16) return std::nullopt;
  std::vector<float> numbers(static_cast<std::size_t>(tensor.elements()));
  tensor::widen(dtype, tensor.bytes(), 0, numbers);
  return numbers;
}

// Those that are still to come may be equal.
bool equal(const tensor::ConstTensor& one, const tensor::ConstTensor& other, Numbers numbers) {
  if (one.shape() != other.shape()) return false;
  if (numbers == Numbers::to_come) return true;
  const auto left = widened(one);
  return left.has_value() && left == widened(other);
}

Error wrong_type(const Unit::Item& item) {
  return unsupported_tensor(item, cat("numbers of type ", motley::name(item.entry->dtype)),
                            "save the adapter as F32, F16 or BF16");
}

bool is_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

// The base's tensor of that name, or of the name that another transformers release uses for the
// block.
std::optional<tensor::ConstTensor> base_tensor(const BaseView& base, std::string_view name) {
  if (name.empty()) return std::nullopt;
  if (auto found = base.file_tensor(name)) return found;
  const std::string_view block = base.block_names().moe;
  for (const auto& [from, to] :
       {std::pair(std::string_view("mlp"), block), std::pair(block, std::string_view("mlp"))}) {
    const std::size_t at = name.find(cat(".", from, "."));
    if (at == std::string_view::npos) continue;
    std::string other(name);
    if (auto found = base.file_tensor(other.replace(at + 1, from.size(), to))) return found;
  }
  return std::nullopt;
}

// The base's tensor that a whole tensor may be a copy of: some tools copy norms, biases and
// routers. Tables are compared where they are read.
std::optional<tensor::ConstTensor> original_of(const Unit::Item& item, const BaseView& base) {
  const std::string name = whole_tensor_name(item.name());
  if (name.ends_with("embed_tokens.weight") || name.ends_with("lm_head.weight"))
    return std::nullopt;
  return base_tensor(base, name);
}

bool copies_base(const Unit::Item& item, const BaseView& base, Numbers numbers) {
  const auto original = original_of(item, base);
  return original && equal(item.tensor(), *original, numbers);
}

Result<TensorName> understand(const Unit::Item& item, const Config& config, const BaseView& base,
                              const SiteIndex& sites) {
  auto name = parse_tensor_name(item.name());
  if (!name.ok()) {
    const std::string replaced = replaced_module_path(item.name());
    if (!replaced.empty() && (names_module(config.modules_to_save, replaced) ||
                              base_tensor(base, whole_tensor_name(item.name())))) {
      return replaced_module(item, replaced);
    }
    return std::move(name).error().within(place_of(item));
  }
  const Module& module = name->module;
  const SiteSpec* spec = sites.find(module.site);
  if (spec == nullptr) return missing_site(item, module, sites);
  if (is_of_experts(module.form) && module.expert >= spec->experts) {
    return bad_tensor(item, cat("expert ", module.expert, " is beyond the base's ", spec->experts,
                                " experts of a layer"));
  }
  const bool whole = name->part == Part::weight || name->part == Part::bias;
  if (whole && module.site.layer >= 0 && names_module(config.modules_to_save, name->path))
    return replaced_module(item, name->path);
  MOTLEY_TRY_VOID(check_part(item, *name, config));
  return name;
}

}  // namespace

namespace {

// A second tensor for the same part of a module is accepted if it equals a saved module's.
Result<void> check_twin(const Unit::Item& item, const Unit::Item& other, bool saved_copy,
                        Numbers numbers) {
  if (!saved_copy) return bad_tensor(item, cat("means the same as tensor ", quote(other.name())));
  if (equal(item.tensor(), other.tensor(), numbers)) return {};
  return bad_tensor(item, cat("differs from tensor ", quote(other.name()),
                              ", and both stand for the saved module"));
}

}  // namespace

Result<Gathered> gather(const tensor::Checkpoint& file, const Config& config, const BaseView& base,
                        const SiteIndex& sites, Numbers numbers) {
  Gathered gathered;
  for (const Unit::Item& item : file.items()) {
    if (const std::string_view kind = ignored_kind(item.name()); !kind.empty()) {
      gathered.ignored.push_back(cat(kind, " (", item.name(), ")"));
      continue;
    }
    gathered.biases =
        gathered.biases || (item.name().ends_with("bias") && !item.name().ends_with("lora_B.bias"));
    if (copies_base(item, base, numbers)) {
      ++gathered.copies;
      continue;
    }
    MOTLEY_TRY(TensorName name, understand(item, config, base, sites));
    if (!is_float(item.entry->dtype)) return wrong_type(item);
    Unit& unit = gathered.units[name.module];
    const Unit::Item*& slot = unit.parts[static_cast<std::size_t>(name.part)];
    if (slot != nullptr) {
      const bool saved =
          name.saved_copy || slot->name().find(".modules_to_save.") != std::string::npos;
      MOTLEY_TRY_VOID(check_twin(item, *slot, saved, numbers));
      continue;
    }
    slot = &item;
    unit.module = name.module;
    if (name.part == Part::weight) unit.weight_in_base_layer = name.in_base_layer;
    // Spellings are equivalent; the one of the factors is kept.
    if (unit.path.empty() || name.part == Part::a) unit.path = std::move(name.path);
  }
  return gathered;
}

Result<void> judge_header(const tensor::SafetensorsHeader& header, const Config& config,
                          const BaseView& base, const SiteIndex& sites) {
  for (const tensor::SafetensorsEntry& entry : header.entries) {
    const Unit::Item item{&entry, nullptr};
    // The loader compares it with the base's.
    if (const auto original = original_of(item, base); original && entry.shape == original->shape())
      continue;
    if (ignored_kind(entry.name).empty()) {
      MOTLEY_TRY_VOID(understand(item, config, base, sites));
      if (!is_float(entry.dtype)) return wrong_type(item);
    }
    for (const std::int64_t length : entry.shape.dims()) {
      if (length > sites.longest_dimension())
        return bad_tensor(item, cat("shape ", to_string(entry.shape),
                                    " is larger than any part of an adapter of this base"));
    }
  }
  return {};
}

namespace {

// An infinity or NaN among numbers that begin at element `first` of a tensor.
Result<void> check_finite(const Unit::Item& item, std::int64_t first,
                          std::span<const float> numbers) {
  const auto found =
      std::ranges::find_if_not(numbers, [](float number) { return std::isfinite(number); });
  if (found == numbers.end()) return {};
  return bad_tensor(item, cat("element ", first + (found - numbers.begin()), " is ",
                              std::isnan(*found) ? "NaN" : "infinite"));
}

}  // namespace

Matrix view_matrix(const Unit::Item& item, std::int64_t rows, std::int64_t columns) {
  const tensor::ConstTensor view = item.tensor();
  MOTLEY_CHECK(view.elements() == rows * columns, "a tensor read as many numbers as it has");
  return {.rows = rows, .columns = columns, .stored = view.bytes(), .dtype = view.dtype()};
}

Result<Matrix> read_matrix(const Unit::Item& item, std::int64_t rows, std::int64_t columns) {
  Matrix matrix{
      .rows = rows, .columns = columns, .values = view_matrix(item, rows, columns).numbers()};
  MOTLEY_TRY_VOID(check_finite(item, 0, matrix.values));
  return matrix;
}

Error not_finite(const Units& units) {
  std::array<float, 1024> numbers{};
  for (const auto& [module, unit] : units) {
    for (const Unit::Item* const item : unit.parts) {
      if (item == nullptr) continue;
      const Matrix all = view_matrix(*item, 1, item->tensor().elements());
      for (std::int64_t first = 0; first < all.size(); first += std::ssize(numbers)) {
        const auto count = std::min<std::int64_t>(std::ssize(numbers), all.size() - first);
        const auto chunk = std::span(numbers).first(static_cast<std::size_t>(count));
        all.read(first, chunk);
        if (Result<void> checked = check_finite(*item, first, chunk); !checked.ok())
          return std::move(checked).error();
      }
    }
  }
  MOTLEY_CHECK(false, "a number that is not finite is one of a tensor");
}

Result<void> require_both(const Unit::Item* a, const Unit::Item* b, std::string_view b_name,
                          std::string_view a_name) {
  if (a != nullptr && b == nullptr) return bad_tensor(*a, cat("has no ", b_name, " beside it"));
  if (a == nullptr && b != nullptr) return bad_tensor(*b, cat("has no ", a_name, " beside it"));
  return {};
}

Result<void> check_rank(const Unit::Item& a, std::int64_t rank_of_a, const Unit::Item& b,
                        std::int64_t rank_of_b, std::int64_t rank_of_config) {
  if (rank_of_a != rank_of_b) {
    return bad_tensor(
        a, cat("is of rank ", rank_of_a, ", and ", quote(b.name()), " is of rank ", rank_of_b));
  }
  if (rank_of_a != rank_of_config) {
    return bad_tensor(
        a, cat("is of rank ", rank_of_a, ", and adapter_config.json says ", rank_of_config));
  }
  return {};
}

}  // namespace motley::lora
