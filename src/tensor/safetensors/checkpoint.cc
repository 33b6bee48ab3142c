#include "tensor/safetensors/checkpoint.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/cat.h"
#include "base/json/json.h"

namespace motley::tensor {
namespace {

constexpr std::size_t longest_index = 256'000'000;

Error bad_index(std::string what, std::string_view where, std::string fix) {
  return {ErrorCode::bad_file, std::move(what), std::string(where), std::move(fix)};
}

// A shard lies in the folder itself: an index from outside must not reach other files.
bool is_plain_file_name(std::string_view name) {
  return name.ends_with(".safetensors") && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

Result<WeightMap> read_index(const std::filesystem::path& path, const FileRules& rules = {}) {
  const auto text = read_text(path, longest_index, rules.beneath);
  if (!text.ok()) return inside_folder(text.error());
  return parse_index(*text, printable(path.string()));
}

std::set<std::string> files_of(const WeightMap& index) {
  std::set<std::string> names;
  for (const auto& [tensor, file] : index) names.insert(file);
  return names;
}

Result<std::vector<SafetensorsFile>> open_shards(const std::filesystem::path& index_path,
                                                 const WeightMap& index, const FileRules& rules,
                                                 const HeaderJudge& judge) {
  const std::filesystem::path folder = index_path.parent_path();
  const std::string where = printable(index_path.string());
  const std::set<std::string> names = files_of(index);
  std::vector<SafetensorsFile> files;
  files.reserve(names.size());
  std::size_t tensors = 0;
  for (const std::string& name : names) {
    auto file = SafetensorsFile::open(folder / name, rules, judge);
    if (!file.ok()) return inside_folder(file.error());
    for (const SafetensorsEntry& entry : file->header().entries) {
      const auto listed = index.find(entry.name);
      if (listed == index.end() || listed->second != name)
        return bad_index(cat("tensor ", quote(entry.name), " is in ", name, ", and the index ",
                             listed == index.end() ? "lacks it" : "puts it elsewhere"),
                         where, "index and shards are of different versions; copy both again");
      ++tensors;
    }
    files.push_back(*std::move(file));
  }
  if (tensors == index.size()) return files;
  for (const auto& [tensor, name] : index) {
    const auto holds = [&](const SafetensorsFile& file) {
      return file.path().filename() == name && file.header().find(tensor) != nullptr;
    };
    if (std::ranges::none_of(files, holds))
      return bad_index(cat("tensor ", quote(tensor), " is not in ", name), where,
                       "index and shards are of different versions; copy both again");
  }
  MOTLEY_CHECK(false, "fewer tensors than the index lists, and none missing");
}

// The names under which transformers, PEFT and the models' makers store pickled weights.
bool is_pickle(std::string_view name) {
  return name == "adapter_model.bin" ||
         (name.starts_with("pytorch_model") && name.ends_with(".bin")) ||
         (name.starts_with("consolidated") && name.ends_with(".pth"));
}

// No weights that we read: say what is there instead.
Error no_weights(const std::filesystem::path& folder, std::string_view stem,
                 const FileRules& rules) {
  const std::string where = printable(folder.string());
  const auto names = list_folder(folder, rules.beneath);
  if (!names.ok()) return names.error();
  for (const std::string& name : *names) {
    if (is_pickle(name))
      return {ErrorCode::unsupported, cat("the weights are a pickle, ", quote(name)), where,
              "a pickle can run any code; convert it to safetensors"};
    if (name.ends_with(".gguf"))
      return {ErrorCode::unsupported, cat("the weights are a GGUF file, ", quote(name)), where,
              "motley does not read GGUF; use the model's safetensors files"};
  }
  return {ErrorCode::not_found,
          cat("no ", stem, ".safetensors and no ", stem, ".safetensors.index.json"), where,
          "check that this is the right folder"};
}

}  // namespace

Result<WeightMap> parse_index(std::string_view text, std::string_view where) {
  auto parsed = json::parse(text, where);
  if (!parsed.ok()) return std::move(parsed).error().as(ErrorCode::bad_file);
  const json::Object* const object = parsed.value().if_object();
  const json::Value* const map = object == nullptr ? nullptr : object->find("weight_map");
  if (map == nullptr || map->if_object() == nullptr)
    return bad_index("no weight_map", where, "an index maps each tensor to its file");
  WeightMap files;
  for (const json::Member& member : map->if_object()->members()) {
    const std::string* const file = member.value.if_string();
    if (file == nullptr || !is_plain_file_name(*file))
      return bad_index(cat("tensor ", quote(member.key), " in ",
                           file == nullptr ? json::describe(member.value.kind())
                                           : std::string_view(quote(*file))),
                       where, "name a .safetensors file of the same folder");
    files.emplace(member.key, *file);
  }
  if (files.empty()) return bad_index("an empty weight_map", where, "list the tensors");
  return files;
}

Result<Checkpoint> Checkpoint::open(const std::filesystem::path& folder, std::string_view stem,
                                    const FileRules& rules, const HeaderJudge& judge) {
  const std::filesystem::path index_path = folder / cat(stem, ".safetensors.index.json");
  MOTLEY_TRY(const PathKind index_kind, path_kind(index_path));
  if (index_kind != PathKind::missing) {
    MOTLEY_TRY(const WeightMap index, read_index(index_path, rules));
    MOTLEY_TRY(std::vector<SafetensorsFile> files, open_shards(index_path, index, rules, judge));
    return Checkpoint(std::move(files));
  }
  const std::filesystem::path single = folder / cat(stem, ".safetensors");
  MOTLEY_TRY(const PathKind single_kind, path_kind(single));
  if (single_kind == PathKind::missing) return no_weights(folder, stem, rules);
  auto opened = open_file(single, rules, judge);
  if (!opened.ok()) return inside_folder(opened.error());
  return opened;
}

Result<void> Checkpoint::check(const std::filesystem::path& folder, std::string_view stem) {
  const std::filesystem::path index_path = folder / cat(stem, ".safetensors.index.json");
  MOTLEY_TRY(const PathKind index_kind, path_kind(index_path));
  std::set<std::string> names = {cat(stem, ".safetensors")};
  if (index_kind != PathKind::missing) {
    MOTLEY_TRY(const WeightMap index, read_index(index_path));
    names = files_of(index);
  }
  for (const std::string& name : names) {
    MOTLEY_TRY(const PathKind kind, path_kind(folder / name));
    if (kind == PathKind::missing)
      return index_kind == PathKind::missing ? no_weights(folder, stem, {})
                                             : inside_folder(no_such_path(folder / name));
    auto checked = check_safetensors_beginning(folder / name);
    if (!checked.ok()) return inside_folder(checked.error());
  }
  return {};
}

Result<Checkpoint> Checkpoint::open_file(const std::filesystem::path& path, const FileRules& rules,
                                         const HeaderJudge& judge) {
  MOTLEY_TRY(SafetensorsFile file, SafetensorsFile::open(path, rules, judge));
  std::vector<SafetensorsFile> files;
  files.push_back(std::move(file));
  return Checkpoint(std::move(files));
}

Result<Checkpoint> Checkpoint::of(MappedFile file, std::optional<SafetensorsHeader> header) {
  MOTLEY_TRY(SafetensorsFile read, SafetensorsFile::of(std::move(file), std::move(header)));
  std::vector<SafetensorsFile> files;
  files.push_back(std::move(read));
  return Checkpoint(std::move(files));
}

Checkpoint::Checkpoint(std::vector<SafetensorsFile> files) : files_(std::move(files)) {
  for (const SafetensorsFile& file : files_) {
    for (const SafetensorsEntry& entry : file.header().entries) items_.push_back({&entry, &file});
  }
  std::ranges::sort(items_, {}, [](const Item& item) { return std::string_view(item.name()); });
}

const Checkpoint::Item* Checkpoint::find(std::string_view name) const {
  const auto at = std::ranges::lower_bound(
      items_, name, {}, [](const Item& item) { return std::string_view(item.name()); });
  return at != items_.end() && at->name() == name ? &*at : nullptr;
}

std::uint64_t Checkpoint::file_bytes() const {
  std::uint64_t total = 0;
  for (const SafetensorsFile& file : files_) total += file.size();
  return total;
}

Result<void> write_checkpoint(const std::filesystem::path& folder, std::string_view stem,
                              std::span<const NamedTensor> tensors,
                              std::uint64_t max_bytes_a_file) {
  std::vector<NamedTensor> sorted(tensors.begin(), tensors.end());
  std::ranges::sort(sorted, {}, &NamedTensor::name);
  const std::filesystem::path single = folder / cat(stem, ".safetensors");
  const std::filesystem::path index_path = folder / cat(stem, ".safetensors.index.json");
  MOTLEY_TRY_VOID(check_names(sorted, printable(single.native())));

  // Consecutive runs of names, each as long as fits; a tensor larger than a file gets one of its
  // own.
  std::vector<std::span<const NamedTensor>> shards;
  std::uint64_t total = 0;
  std::uint64_t in_shard = 0;
  std::size_t first = 0;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const auto bytes = static_cast<std::uint64_t>(sorted[i].tensor.byte_count());
    if (i > first && in_shard + bytes > max_bytes_a_file) {
      shards.emplace_back(std::span(sorted).subspan(first, i - first));
      first = i;
      in_shard = 0;
    }
    in_shard += bytes;
    total += bytes;
  }
  shards.emplace_back(std::span(sorted).subspan(first));
  if (shards.size() == 1) {
    MOTLEY_TRY_VOID(write_safetensors(single, sorted));
    return remove_file(index_path);
  }

  const auto five_digits = [](std::size_t number) {
    const std::string digits = cat(number);
    return std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits;
  };
  // First, because shards of the same names are replaced one by one.
  MOTLEY_TRY_VOID(remove_file(index_path));
  json::Object weight_map;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string file =
        cat(stem, "-", five_digits(i + 1), "-of-", five_digits(shards.size()), ".safetensors");
    MOTLEY_TRY_VOID(write_safetensors(folder / file, shards[i]));
    for (const NamedTensor& tensor : shards[i]) weight_map.add(tensor.name, file);
  }
  json::Object metadata{{"total_size", static_cast<std::int64_t>(total)}};
  json::Object index{{"metadata", std::move(metadata)}, {"weight_map", std::move(weight_map)}};
  // Last, so that a folder without it is visibly unfinished.
  MOTLEY_TRY(AtomicFile file, AtomicFile::create(index_path));
  MOTLEY_TRY_VOID(file.write(json::write_pretty(std::move(index)) + "\n"));
  MOTLEY_TRY_VOID(file.commit());
  return remove_file(single);
}

}  // namespace motley::tensor
