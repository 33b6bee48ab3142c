#include "cli/options/adapters/adapter_option.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>

#include "base/cat.h"
#include "base/spelling.h"
#include "base/system/files.h"
#include "cli/options/adapters/lora_modules.h"
#include "cli/options/folders/named_folder.h"
#include "cli/options/foreign/foreign_options.h"
#include "engine/adapter_name.h"

namespace motley::cli {
namespace {

// That may follow an adapter's path.
constexpr std::array<std::string_view, 4> words = {"pinned", "partial", "b-columns=rank-major",
                                                   "orientation=standard"};

Error wrong(std::string what, std::string fix) {
  return {ErrorCode::invalid_argument, std::move(what), "--adapter", std::move(fix)};
}

// Parses an option after the path; false if the text is no option.
Result<bool> take_option(std::string_view text, serving::StartAdapter& option) {
  constexpr std::string_view columns = "b-columns=";
  constexpr std::string_view orientation = "orientation=";
  if (text == "pinned") {
    option.pinned = true;
  } else if (text == "partial") {
    option.load.partial = true;
  } else if (text.starts_with(columns)) {
    MOTLEY_TRY(option.load.b_columns, lora::parse_b_columns(text.substr(columns.size())));
  } else if (text.starts_with(orientation)) {
    MOTLEY_TRY(option.load.orientation, lora::parse_orientation(text.substr(orientation.size())));
  } else {
    return false;
  }
  return true;
}

// Nothing if that can't be told.
std::optional<PathKind> kind_of(const std::filesystem::path& path) {
  const auto kind = path_kind(path);
  return kind.ok() ? std::optional(*kind) : std::nullopt;
}

// Of a path that was not found, as "PATH,pined": the part before a comma is a folder, and what
// follows no option. `option` is the command line's word, which the path is from.
std::optional<Error> explain_option(const std::filesystem::path& path, std::string_view option,
                                    const hub::Cache& cache) {
  if (kind_of(path).value_or(PathKind::missing) != PathKind::missing) return std::nullopt;
  const std::string& text = path.native();
  for (std::size_t comma = text.find(','); comma != std::string::npos;
       comma = text.find(',', comma + 1)) {
    const std::filesystem::path before = text.substr(0, comma);
    if (kind_of(before) != PathKind::folder && !means_repository(before, cache)) continue;
    const std::string word = text.substr(comma + 1, text.find(',', comma + 1) - comma - 1);
    const auto meant = closest(word, words);
    return Error(ErrorCode::invalid_argument, cat(quote(word), " is no option of an adapter"),
                 std::string(option),
                 meant ? cat("did you mean ", *meant, "?")
                       : cat("options after the path are ", join(words)));
  }
  return std::nullopt;
}

}  // namespace

Result<serving::StartAdapter> parse_adapter_option(std::string_view text) {
  // An option after the path may have a '=' of its own.
  const std::string_view name = text.substr(0, text.find('='));
  const bool named = name.size() < text.size() && name.find(',') == std::string_view::npos;
  serving::StartAdapter option;
  // Options follow the path, which may contain commas.
  std::string_view path = named ? text.substr(name.size() + 1) : text;
  for (std::size_t comma = path.rfind(','); comma != std::string_view::npos;
       comma = path.rfind(',')) {
    MOTLEY_TRY(const bool taken, take_option(path.substr(comma + 1), option));
    if (!taken) break;
    path = path.substr(0, comma);
  }
  if (path.empty())
    return wrong(named ? cat("adapter ", quote(name), " has no path") : "an adapter without a path",
                 "write NAME=PATH");
  option.path = path;
  option.name = named ? std::string(name) : folder_name(option.path);
  if (engine::is_adapter_name(option.name)) return option;
  return wrong(cat("not an adapter's name: ", quote(option.name)),
               cat(named ? "use " : "write NAME=PATH, with a name of ", engine::adapter_name_rule));
}

Result<std::vector<serving::StartAdapter>> read_adapter_options(const Arguments& arguments) {
  std::vector<serving::StartAdapter> adapters;
  std::vector<std::string_view> options;  // that each is from
  const auto add = [&](serving::StartAdapter adapter, std::string_view option) -> Result<void> {
    if (std::ranges::find(adapters, adapter.name, &serving::StartAdapter::name) != adapters.end())
      return Error(ErrorCode::invalid_argument, cat("adapter ", quote(adapter.name), " twice"),
                   std::string(option), "give each a name of its own");
    adapters.push_back(std::move(adapter));
    options.push_back(option);
    return {};
  };
  for (const std::string& text : arguments.values("--adapter")) {
    MOTLEY_TRY(serving::StartAdapter adapter, parse_adapter_option(text));
    MOTLEY_TRY_VOID(add(std::move(adapter), "--adapter"));
  }
  for (const std::string& item : arguments.values(lora_modules_option)) {
    MOTLEY_TRY(std::vector<serving::StartAdapter> modules, parse_lora_modules(item));
    for (serving::StartAdapter& adapter : modules)
      MOTLEY_TRY_VOID(add(std::move(adapter), lora_modules_option));
  }
  for (std::size_t i = 0; i < adapters.size(); ++i) {
    const hub::Cache& cache = arguments.environment().hub;
    auto folder = find_adapter_folder(adapters[i].path, cache);
    if (!folder.ok()) {
      const std::string place = cat(options[i], " ", adapters[i].name);
      if (auto reason = explain_option(adapters[i].path, place, cache)) return *std::move(reason);
      return std::move(folder).error();
    }
    adapters[i].path = *std::move(folder);
  }
  return adapters;
}

}  // namespace motley::cli
