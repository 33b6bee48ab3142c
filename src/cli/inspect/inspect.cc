// motley inspect: describes a folder or file. A damaged container (names, types, shapes, layout) is
// an error; a valid one is described, together with the reason why it would not load.

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <tuple>

#include "base/cat.h"
#include "base/json/json.h"
#include "base/system/files.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/inspect/adapter.h"
#include "cli/inspect/facts.h"
#include "cli/inspect/kernels.h"
#include "cli/inspect/model.h"
#include "cli/inspect/supported.h"
#include "cli/options/folders/named_folder.h"
#include "cli/options/settings/compute_settings.h"
#include "tensor/safetensors/checkpoint.h"

namespace motley::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t longest_config = 64'000'000;

// The source of the tensors of an inspected path.
struct Contents {
  std::string_view kind;  // "model", "adapter" or "file"
  std::optional<json::Value> config;
  tensor::Checkpoint checkpoint;
};

struct Tally {
  std::uint64_t tensors = 0;
  std::uint64_t bytes = 0;

  void add(const tensor::SafetensorsEntry& entry) {
    ++tensors;
    bytes += entry.end - entry.begin;
  }
};

Result<json::Value> read_config(const fs::path& folder, std::string_view name) {
  const fs::path path = folder / name;
  MOTLEY_TRY(const PathKind kind, path_kind(path));
  if (kind == PathKind::missing)
    return Error(ErrorCode::bad_file, cat("no ", name), printable(folder.string()),
                 "check that this is the right folder, and copied whole");
  const auto text = read_text(path, longest_config);
  if (!text.ok()) return inside_folder(text.error());
  const std::string where = printable(path.string());
  auto value = json::parse(*text, where);
  if (!value.ok()) return std::move(value).error().as(ErrorCode::bad_file);
  if (const auto object = value->as_object(where); !object.ok())
    return Error(object.error()).as(ErrorCode::bad_file);
  return value;
}

// An adapter folder is recognised by its config or weights; anything else counts as a model.
Result<bool> is_adapter(const fs::path& folder) {
  for (const char* name :
       {"adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"}) {
    MOTLEY_TRY(const PathKind kind, path_kind(folder / name));
    if (kind != PathKind::missing) return true;
  }
  return false;
}

Result<Contents> read_contents(const fs::path& path) {
  MOTLEY_TRY(const PathKind kind, path_kind(path));
  if (kind == PathKind::missing) return no_such_path(path);
  if (kind == PathKind::other)
    return Error(ErrorCode::invalid_argument, "neither a file nor a folder",
                 printable(path.string()), "name a model, an adapter or a safetensors file");
  if (kind == PathKind::file) {
    MOTLEY_TRY(tensor::Checkpoint file, tensor::Checkpoint::open_file(path));
    return Contents{"file", std::nullopt, std::move(file)};
  }
  MOTLEY_TRY(const bool adapter, is_adapter(path));
  MOTLEY_TRY(tensor::Checkpoint checkpoint,
             tensor::Checkpoint::open(path, adapter ? "adapter_model" : "model"));
  MOTLEY_TRY(json::Value config,
             read_config(path, adapter ? "adapter_config.json" : "config.json"));
  return Contents{adapter ? "adapter" : "model", std::move(config), std::move(checkpoint)};
}

// "model.layers.3.mlp.experts.17.up_proj" -> "model.layers.*.mlp.experts.*.up_proj"
std::string pattern_of(std::string_view name) {
  std::string pattern;
  while (true) {
    const std::size_t dot = name.find('.');
    const std::string_view part = name.substr(0, dot);
    const bool number =
        !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    pattern += number ? "*" : printable(part);
    if (dot == std::string_view::npos) return pattern;
    pattern += '.';
    name.remove_prefix(dot + 1);
  }
}

// Settings of a config that describe it, and the findings that replace them once it is understood.
struct Setting {
  std::string_view key;
  std::string_view fact;
};

std::string describe_config(const json::Value& config, const Findings& findings) {
  std::string text;
  const json::Object* const object = config.if_object();
  if (object == nullptr) return text;
  for (const auto& [key, fact] : {Setting{"model_type", "family"},
                                  {"peft_type", ""},
                                  {"r", "rank"},
                                  {"lora_alpha", "alpha"},
                                  {"base_model_name_or_path", ""}}) {
    const json::Value* const value = object->find_set(key);
    if (value == nullptr) continue;
    if (std::ranges::find(findings.facts, fact, &Fact::key) != findings.facts.end()) continue;
    const std::string* const string = value->if_string();
    text +=
        cat("  ", key, ": ", string != nullptr ? printable(*string) : json::write(*value), "\n");
  }
  return text;
}

std::string describe_findings(const Findings& findings) {
  std::string text;
  for (const Fact& fact : findings.facts) {
    std::string label = fact.key;
    std::ranges::replace(label, '_', ' ');
    text += cat("  ", label, ": ", fact.text, "\n");
  }
  if (findings.refusal) text += cat("  would be refused: ", *findings.refusal, "\n");
  return text;
}

Result<Findings> find_out(const fs::path& path, const Contents& contents,
                          const std::optional<InspectedBase>& base,
                          const serving::ComputeSettings& settings) {
  if (settings.ranks > 1 && contents.kind != "model")
    return Error(ErrorCode::invalid_argument, "only a model is cut over ranks",
                 settings.expert_groups > 1 ? "--ep" : "--tp",
                 "leave it out, or name a model's folder");
  if (contents.kind == "adapter") return inspect_adapter(path, contents.checkpoint, base);
  if (contents.kind == "model") return inspect_model(path, *contents.config, settings);
  return Findings{};
}

std::string text_report(const fs::path& path, const Contents& contents, const Findings& findings,
                        bool every_tensor) {
  std::string text = cat(contents.kind, " ", printable(path.string()), "\n");
  if (contents.config) text += describe_config(*contents.config, findings);
  text += describe_findings(findings);

  std::map<DType, Tally> by_dtype;
  Tally all;
  for (const auto& item : contents.checkpoint.items()) {
    by_dtype[item.entry->dtype].add(*item.entry);
    all.add(*item.entry);
  }
  text += cat("  ", all.tensors, " tensors, ", format_bytes(all.bytes), ", in ",
              contents.checkpoint.files().size(), " file(s)\n");
  for (const auto& [dtype, tally] : by_dtype)
    text += cat("    ", name(dtype), ": ", tally.tensors, ", ", format_bytes(tally.bytes), "\n");

  if (every_tensor) {
    for (const auto& item : contents.checkpoint.items())
      text += cat("  ", printable(item.name()), " ", name(item.entry->dtype), " ",
                  to_string(item.entry->shape), "\n");
    return text;
  }
  // Tensors that differ only in layer or expert share a line.
  using Row = std::tuple<std::string, DType, std::string>;
  std::map<Row, Tally> rows;
  for (const auto& item : contents.checkpoint.items()) {
    const tensor::SafetensorsEntry& entry = *item.entry;
    rows[{pattern_of(entry.name), entry.dtype, to_string(entry.shape)}].add(entry);
  }
  for (const auto& [row, tally] : rows) {
    const auto& [pattern, dtype, shape] = row;
    text += cat("  ", pattern, " ", name(dtype), " ", shape);
    if (tally.tensors > 1) text += cat(" x ", tally.tensors);
    text += '\n';
  }
  return text;
}

json::Value json_report(const Contents& contents, const Findings& findings) {
  json::Array tensors;
  Tally all;
  for (const auto& item : contents.checkpoint.items()) {
    json::Array shape;
    for (const std::int64_t length : item.entry->shape.dims()) shape.emplace_back(length);
    json::Object tensor;
    tensor.add("name", item.name());
    tensor.add("dtype", name(item.entry->dtype));
    tensor.add("shape", std::move(shape));
    tensor.add("file", item.file->path().filename().string());
    tensors.emplace_back(std::move(tensor));
    all.add(*item.entry);
  }
  json::Object report;
  report.add("kind", contents.kind);
  if (contents.config) report.add("config", *contents.config);
  if (contents.config) {
    json::Object facts;
    for (const Fact& fact : findings.facts) facts.add(fact.key, fact.value);
    report.add("facts", std::move(facts));
    report.add("would_be_refused",
               findings.refusal ? json::Value(*findings.refusal) : json::Value(nullptr));
  }
  report.add("bytes", static_cast<std::int64_t>(all.bytes));
  report.add("tensors", std::move(tensors));
  return report;
}

// The base of --model.
Result<std::optional<InspectedBase>> load_base(const Arguments& arguments,
                                               const serving::ComputeSettings& settings) {
  const std::string* const model = arguments.value("--model");
  if (model == nullptr) return std::optional<InspectedBase>();
  auto folder = find_model_folder(*model, "serve", arguments.environment().hub);
  if (!folder.ok()) return std::move(folder).error().within("--model");
  auto loaded = load_to_inspect(*folder);
  if (!loaded.ok()) return std::move(loaded).error().within("--model");
  std::optional<InspectedBase> base(
      {.folder = *model, .loaded = *std::move(loaded), .names = ServedBase(*folder, {})});
  if (!arguments.has("--no-adapter-check")) base->trial = AdapterTrial::start(*folder, settings);
  return base;
}

// After the report, so that scripts see it too.
Result<void> refused(const fs::path& path, std::string_view what) {
  return Error(ErrorCode::bad_file, std::string(what), printable(path.string()),
               "the report says why");
}

Result<void> inspect_one(const fs::path& path, const Arguments& arguments,
                         const serving::ComputeSettings& settings, Output output) {
  MOTLEY_TRY(const Contents contents, read_contents(path));
  if (arguments.has("--kernels")) {
    if (contents.kind != "model" || arguments.has("--json"))
      return Error(ErrorCode::invalid_argument, "shows a model's kernels, as text", "--kernels",
                   "name a model's folder, and leave --json out");
    MOTLEY_TRY(const std::string text, describe_kernels(path, settings));
    output(text);
    return {};
  }
  if (arguments.has("--model") && contents.kind != "adapter")
    return Error(ErrorCode::invalid_argument, "only an adapter has a base", "--model",
                 "leave it out, or name an adapter's folder");
  MOTLEY_TRY(const std::optional<InspectedBase> base, load_base(arguments, settings));
  MOTLEY_TRY(const Findings findings, find_out(path, contents, base, settings));
  if (arguments.has("--json")) {
    output(json::write(json_report(contents, findings)) + "\n");
  } else {
    output(text_report(path, contents, findings, arguments.has("--tensors")));
  }
  if (findings.refusal) return refused(path, "would be refused");
  return {};
}

// "cynic: rank 8, convention packed", or why it would be refused.
std::string line_of(std::string_view name, const Findings& findings) {
  std::vector<std::string> parts;
  for (const Fact& fact : findings.facts) {
    for (const std::string_view key : {"rank", "convention", "adapts", "device_bytes"}) {
      if (fact.key != key) continue;
      std::string label = fact.key;
      std::ranges::replace(label, '_', ' ');
      parts.push_back(cat(label, " ", fact.text));
    }
  }
  if (findings.refusal) parts.push_back(cat("would be refused: ", *findings.refusal));
  return cat(printable(name), ": ", join(parts), "\n");
}

json::Value json_of(std::string_view name, const Findings& findings) {
  json::Object facts;
  for (const Fact& fact : findings.facts) facts.add(fact.key, fact.value);
  json::Object adapter;
  adapter.add("name", name);
  adapter.add("facts", std::move(facts));
  adapter.add("would_be_refused",
              findings.refusal ? json::Value(*findings.refusal) : json::Value(nullptr));
  return adapter;
}

Result<Findings> inspect_adapter_folder(const fs::path& folder,
                                        const std::optional<InspectedBase>& base) {
  MOTLEY_TRY(const Contents contents, read_contents(folder));
  return inspect_adapter(folder, contents.checkpoint, base);
}

// A folder of adapters: one line each.
Result<void> inspect_adapters(const fs::path& path, const std::vector<std::string>& names,
                              const Arguments& arguments, const serving::ComputeSettings& settings,
                              Output output) {
  MOTLEY_TRY(const std::optional<InspectedBase> base, load_base(arguments, settings));
  std::size_t refusals = 0;
  json::Array array;
  for (const std::string& name : names) {
    auto read = inspect_adapter_folder(path / name, base);
    Findings findings;
    if (read.ok())
      findings = *std::move(read);
    else
      findings.refusal = read.error().message();
    if (findings.refusal) ++refusals;
    if (arguments.has("--json"))
      array.push_back(json_of(name, findings));
    else
      output(line_of(name, findings));
  }
  if (arguments.has("--json")) {
    json::Object report;
    report.add("kind", "adapters");
    report.add("adapters", std::move(array));
    output(json::write(std::move(report)) + "\n");
  }
  if (refusals == 0) return {};
  return refused(path, cat(refusals, " of ", names.size(), " adapters would be refused"));
}

// The adapters in a folder that is itself neither a model nor an adapter.
Result<std::vector<std::string>> adapters_of_folder(const fs::path& path) {
  MOTLEY_TRY(const bool adapter, is_adapter(path));
  for (const char* name : {"config.json", "model.safetensors", "model.safetensors.index.json"}) {
    MOTLEY_TRY(const PathKind kind, path_kind(path / name));
    if (adapter || kind != PathKind::missing) return std::vector<std::string>();
  }
  return adapters_in(path);
}

Result<void> inspect(const Arguments& arguments, Output output) {
  fs::path path = arguments.positional(0);
  if (arguments.has("--supported") == !path.empty())
    return Error(ErrorCode::invalid_argument,
                 path.empty() ? "no PATH" : "--supported is about no path", "motley inspect",
                 "see motley inspect --help");
  if (path.empty()) return output(supported_tables()), Result<void>();
  MOTLEY_TRY(const serving::ComputeSettings settings, read_compute_settings(arguments));
  MOTLEY_TRY_VOID(require_one_replica(settings, "inspect"));
  MOTLEY_TRY(const PathKind kind, path_kind(path));
  const hub::Cache& cache = arguments.environment().hub;
  const bool is_named = means_repository(path, cache);
  if (kind == PathKind::missing && !is_named) {
    // With the advice about names, but a file would do, too.
    if (const auto folder = find_folder(path, cache); !folder.ok())
      return Error(folder.error().code(), "no such file or folder", folder.error().where(),
                   folder.error().fix());
  }
  if (kind == PathKind::folder || is_named) {
    MOTLEY_TRY(path, find_folder(path, cache));
    MOTLEY_TRY(const std::vector<std::string> adapters, adapters_of_folder(path));
    if (!adapters.empty()) return inspect_adapters(path, adapters, arguments, settings, output);
  }
  return inspect_one(path, arguments, settings, output);
}

}  // namespace

void Findings::add_bytes(std::string key, std::int64_t bytes) {
  add(std::move(key), bytes, format_bytes(static_cast<std::uint64_t>(bytes)));
}

Command inspect_command() {
  std::vector<OptionSpec> options{
      {"--model", "MODEL", "the base that an adapter is checked against"},
      {"--no-adapter-check", "", "do not try an adapter on its base with a short prompt"},
      {"--tensors", "", "list every tensor by its own name"},
      {"--json", "", "print one JSON object, every tensor in it"},
      {"--supported", "", "instead of PATH: what works, as tables"},
      {"--kernels", "", "load the model, and show what its steps launch on the device"}};
  std::ranges::copy(compute_option_specs(), std::back_inserter(options));
  return {
      .spec =
          {.name = "inspect",
           .summary =
               "shows what a model, an adapter, a folder of adapters or a safetensors file holds",
           .positionals = {},
           .optional_positional = "PATH",
           .options = std::move(options),
           .examples = {"motley inspect models/demo",
                        "motley inspect models/demo/adapters/jargon --model models/demo",
                        "motley inspect models/demo --tp 2",
                        "motley inspect models/demo --tp 4 --ep 2",
                        "motley inspect models/demo --kernels", "motley inspect --supported"}},
      .run = inspect};
}

}  // namespace motley::cli
