#include "lora/files/load.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/cat.h"
#include "base/log.h"
#include "base/system/files.h"
#include "lora/files/config/config.h"
#include "lora/files/content.h"
#include "lora/files/conventions/builder.h"
#include "lora/files/conventions/gather.h"
#include "lora/files/missing.h"
#include "tensor/safetensors/checkpoint.h"

namespace motley::lora {

namespace {

constexpr std::string_view weights_stem = AdapterContent::weights_stem;
constexpr std::string_view config_name = AdapterContent::config_name;

Result<Config> read_config(const std::filesystem::path& folder,
                           const std::filesystem::path& beneath = {}) {
  MOTLEY_TRY(const std::string text, read_adapter_config(folder, beneath));
  return parse_adapter_config(text, config_name);
}

// Removes unreferenced matrices from the canonical form.
void drop_unused(Adapter& adapter) {
  std::vector<int> places(adapter.matrices.size(), -1);
  const auto each_place = [&](auto&& visit) {
    for (SiteDelta& delta : adapter.sites) {
      for (Factors& factors : delta.factors) {
        visit(factors.a);
        visit(factors.b);
      }
      for (int* place : {&delta.lora_bias, &delta.gain, &delta.replaced, &delta.replaced_bias})
        visit(*place);
    }
  };
  each_place([&](int place) {
    if (place >= 0) places[static_cast<std::size_t>(place)] = 0;
  });
  std::vector<Matrix> kept;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (places[i] < 0) continue;
    places[i] = static_cast<int>(kept.size());
    kept.push_back(std::move(adapter.matrices[i]));
  }
  adapter.matrices = std::move(kept);
  each_place([&](int& place) {
    if (place >= 0) place = places[static_cast<std::size_t>(place)];
  });
}

// Some of many names, and the number of the others.
std::string shortened(const std::vector<std::string>& names) {
  constexpr std::size_t shown = 8;
  if (names.size() <= shown) return join(names);
  return cat(join(std::vector(names.begin(), names.begin() + shown)), " and ", names.size() - shown,
             " more");
}

void note_what_says_nothing(const std::string& path, const Gathered& gathered) {
  if (gathered.copies > 0)
    log::info("adapter.copies_of_base", {{"path", path}, {"tensors", gathered.copies}});
  if (gathered.ignored.empty()) return;
  log::info("adapter.tensors_ignored", {{"path", path}, {"tensors", shortened(gathered.ignored)}});
}

// Whether biases of adapted modules were trained but are missing in the file.
bool lost_biases(const Gathered& gathered, const Config& config, const BaseView& base) {
  if (config.bias != Config::Bias::lora_only || gathered.biases) return false;
  return std::ranges::any_of(gathered.units, [&](const auto& entry) {
    const Unit& unit = entry.second;
    return unit.part(Part::a) != nullptr && base.file_tensor(cat(unit.path, ".bias")).has_value();
  });
}

// Reports what the configuration names and the file lacks.
Result<void> check_missing(const std::string& path, const Missing& missing, bool partial) {
  if (!missing.kinds.empty()) {
    log::info("adapter.kinds_absent", {{"path", path}, {"modules", shortened(missing.kinds)}});
  }
  if (missing.modules.empty()) return {};
  const std::string names = shortened(missing.modules);
  if (!partial) {
    return Error(ErrorCode::bad_file,
                 cat("has no factors of ", names, ", which ", config_name, " names"),
                 "adapter_model.safetensors",
                 "save the adapter whole, or give partial with it (NAME=PATH,partial): what is "
                 "missing is then taken as zero");
  }
  log::warning("adapter.partial",
               {{"path", path}, {"missing", missing.modules.size()}, {"modules", names}});
  return {};
}

// Where an adapter's tensors are, and what the log calls that place.
struct Tensors {
  const tensor::Checkpoint& file;
  std::string path;
};

Result<Adapter> assemble(const Tensors& tensors, const Config& config, const LoadOptions& options,
                         const BaseView& base, const SiteIndex& sites) {
  const std::string& path = tensors.path;
  MOTLEY_TRY(const Gathered gathered, gather(tensors.file, config, base, sites));
  const Units& units = gathered.units;
  Builder builder(config, options, base, sites);
  MOTLEY_TRY_VOID(build_plain(builder, units));
  MOTLEY_TRY_VOID(build_row_parts(builder, units));
  MOTLEY_TRY_VOID(build_experts(builder, units));
  const Missing missing = find_missing(units, builder.deltas, config, base);

  Adapter& adapter = builder.adapter;
  for (auto& [site, delta] : builder.deltas) {
    for (const Factors& factors : delta.factors)
      adapter.largest_rank = std::max(adapter.largest_rank, factors.rank);
    adapter.sites.push_back(std::move(delta));
  }
  drop_unused(adapter);
  const auto version = hash_finite_content(adapter);
  if (!version) return not_finite(units);
  adapter.version = *version;
  MOTLEY_TRY_VOID(check_missing(path, missing, options.partial));
  note_what_says_nothing(path, gathered);
  if (lost_biases(gathered, config, base)) {
    log::warning("adapter.biases_lost",
                 {{"path", path},
                  {"bias", "lora_only"},
                  {"note",
                   "the file has no biases: PEFT up to 0.20 trains them and does not save "
                   "them. The base's are taken; train with bias=none or PEFT 0.21"}});
  }
  return std::move(adapter);
}

// As assemble(), as far as names, types and shapes tell.
Result<void> check_shapes(const tensor::SafetensorsHeader& header, const Config& config,
                          const LoadOptions& options, const BaseView& base) {
  const SiteIndex sites(base);
  MOTLEY_TRY_VOID(judge_header(header, config, base, sites));
  std::size_t bytes = 0;
  for (const tensor::SafetensorsEntry& each : header.entries) bytes = std::max(bytes, each.end);
  MOTLEY_TRY(MappedFile zeros, MappedFile::zeros("header", bytes));
  MOTLEY_TRY(const tensor::Checkpoint file, tensor::Checkpoint::of(std::move(zeros), header));
  MOTLEY_TRY(const Gathered gathered, gather(file, config, base, sites, Numbers::to_come));
  Builder builder(config, options, base, sites);
  builder.numbers = Numbers::to_come;
  MOTLEY_TRY_VOID(build_plain(builder, gathered.units));
  MOTLEY_TRY_VOID(build_row_parts(builder, gathered.units));
  return build_experts(builder, gathered.units);
}

Result<Adapter> build(const std::filesystem::path& folder, const LoadOptions& options,
                      const BaseView& base) {
  MOTLEY_TRY(const Config config, read_config(folder, options.beneath));
  const SiteIndex sites(base);
  // Adapters are loaded while others are served, from files that may still be written.
  FileRules rules(FileAccess::copied);
  rules.beneath = options.beneath;
  const auto judge = [&](const tensor::SafetensorsHeader& header, std::string_view) {
    return judge_header(header, config, base, sites);
  };
  const auto assembled = [&]() -> Result<Adapter> {
    MOTLEY_TRY(tensor::Checkpoint opened,
               tensor::Checkpoint::open(folder, weights_stem, rules, judge));
    const auto file = std::make_shared<const tensor::Checkpoint>(std::move(opened));
    MOTLEY_TRY(Adapter adapter, assemble({*file, folder.string()}, config, options, base, sites));
    adapter.file = file;
    return adapter;
  };
  auto adapter = assembled();
  // Errors and results may stem from patterns that exceeded the budget.
  MOTLEY_TRY_VOID(config.within_budget());
  return adapter;
}

Result<Adapter> build(const AdapterContent& content, const LoadOptions& options,
                      const BaseView& base) {
  MOTLEY_TRY(const Config config, parse_adapter_config(content.config(), config_name));
  const SiteIndex sites(base);
  const auto assembled = [&]() -> Result<Adapter> {
    for (const tensor::SafetensorsFile& file : content.tensors().files())
      MOTLEY_TRY_VOID(judge_header(file.header(), config, base, sites));
    return assemble({content.tensors(), content.name()}, config, options, base, sites);
  };
  auto adapter = assembled();
  MOTLEY_TRY_VOID(config.within_budget());
  return adapter;
}

// If the message does not say what to do, the kind of error decides.
Error advised(Error error) {
  if (!error.fix().empty()) return error;
  const bool damaged = error.code() == ErrorCode::bad_file;
  return {error.code(), error.what(), error.where(),
          damaged ? "the adapter is damaged or made for another base; save it again"
                  : "use an adapter that is plain LoRA, or merge this one into its base"};
}

}  // namespace

Matrix transposed(const Matrix& from) {
  Matrix to{.rows = from.columns,
            .columns = from.rows,
            .values = std::vector<float>(static_cast<std::size_t>(from.size()))};
  std::vector<float> row(static_cast<std::size_t>(from.columns));
  for (std::int64_t r = 0; r < from.rows; ++r) {
    from.read(r * from.columns, row);
    for (std::int64_t c = 0; c < from.columns; ++c)
      to.values[static_cast<std::size_t>(c * from.rows + r)] = row[static_cast<std::size_t>(c)];
  }
  return to;
}

Result<BColumns> parse_b_columns(std::string_view text) {
  if (text == "rank-major") return BColumns::rank_major;
  if (text == "expert-major") return BColumns::expert_major;
  return Error(ErrorCode::invalid_argument, cat("b-columns=", printable(text)), {},
               "give rank-major or expert-major");
}

Result<Orientation> parse_orientation(std::string_view text) {
  if (text == "standard") return Orientation::standard;
  if (text == "swapped") return Orientation::swapped;
  return Error(ErrorCode::invalid_argument, cat("orientation=", printable(text)), {},
               "give standard or swapped");
}

Result<Adapter> load_adapter(const std::filesystem::path& folder, const LoadOptions& options,
                             const BaseView& base) {
  auto adapter = build(folder, options, base);
  if (!adapter.ok()) return advised(std::move(adapter).error()).within(printable(folder.string()));
  return adapter;
}

Result<Adapter> load_adapter(const AdapterContent& content, const LoadOptions& options,
                             const BaseView& base) {
  auto adapter = build(content, options, base);
  if (!adapter.ok()) return advised(std::move(adapter).error());
  return adapter;
}

Result<void> check_header(const tensor::SafetensorsHeader& header, std::string_view config,
                          const LoadOptions& options, const BaseView& base) {
  const auto check = [&]() -> Result<void> {
    MOTLEY_TRY(const Config read, parse_adapter_config(config, config_name));
    Result<void> checked = check_shapes(header, read, options, base);
    MOTLEY_TRY_VOID(read.within_budget());
    return checked;
  };
  Result<void> checked = check();
  if (!checked.ok()) return advised(std::move(checked).error());
  return checked;
}

Result<std::string> read_adapter_config(const std::filesystem::path& folder,
                                        const std::filesystem::path& beneath) {
  const std::filesystem::path path = folder / config_name;
  MOTLEY_TRY(const PathKind kind, path_kind(path));
  if (kind == PathKind::missing) {
    return Error(ErrorCode::bad_file, cat("no ", config_name), {},
                 "give a folder with an adapter as PEFT saves it");
  }
  return read_text(path, AdapterContent::max_config_bytes, beneath);
}

Result<void> check_files(const std::filesystem::path& folder) {
  const auto check = [&]() -> Result<void> {
    MOTLEY_TRY(const Config config, read_config(folder));
    MOTLEY_TRY_VOID(config.within_budget());
    return tensor::Checkpoint::check(folder, weights_stem);
  };
  Result<void> checked = check();
  if (checked.ok()) return {};
  return advised(std::move(checked).error()).within(printable(folder.string()));
}

}  // namespace motley::lora
