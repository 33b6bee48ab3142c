#include "wide/wide_golden.h"

#include <algorithm>
#include <memory>

#include "base/cat.h"
#include "base/system/files.h"
#include "score/golden_model.h"
#include "tensor/safetensors/checkpoint.h"

namespace motley::wide_tests {
namespace {

namespace fs = std::filesystem;
using score_tests::at;

constexpr std::size_t max_golden_bytes = 64'000'000;
// Of a tensor, that one thread makes at a time.
constexpr std::int64_t part_elements = 1 << 20;

std::vector<Recipe> read_recipes(const json::Value& list) {
  std::vector<Recipe> recipes;
  for (const json::Value& each : *list.as_array("tensors").value())
    recipes.push_back(read_recipe(each));
  return recipes;
}

Files read_files(const json::Value& record) {
  return {.seed = *at(record, "seed").as_string("seed").value(),
          .config = at(record, "config"),
          .tensors = read_recipes(at(record, "tensors"))};
}

struct Part {
  const Recipe* recipe;
  std::uint64_t key;
  std::int64_t first;
  std::int64_t count;
  std::byte* to;
};

}  // namespace

const fs::path& wide_goldens_folder() {
  static const fs::path folder = MOTLEY_WIDE_GOLDENS;
  return folder;
}

std::vector<std::string> wide_models() {
  std::vector<std::string> names;
  for (const std::string& name : list_folder(wide_goldens_folder()).value()) {
    if (fs::is_directory(wide_goldens_folder() / name)) names.push_back(name);
  }
  return names;
}

void write_config(const json::Value& config, const fs::path& to) {
  auto file = AtomicFile::create(to);
  file.value().write(json::write_pretty(config)).value();
  file.value().commit().value();
}

std::uint64_t Files::key(std::string_view name) const { return key_of(cat(seed, "/", name)); }

void Files::write(const fs::path& to, std::string_view config_name, std::string_view stem,
                  ThreadPool& threads) const {
  fs::create_directories(to);
  std::vector<std::unique_ptr<std::byte[]>> memory;
  std::vector<tensor::NamedTensor> named;
  std::vector<Part> parts;
  for (const Recipe& recipe : tensors) {
    for (std::string& name : recipe.names()) {
      std::byte* const bytes = memory
                                   .emplace_back(std::make_unique_for_overwrite<std::byte[]>(
                                       std::size_t(recipe.bytes())))
                                   .get();
      for (std::int64_t first = 0; first < recipe.elements(); first += part_elements)
        parts.push_back({.recipe = &recipe,
                         .key = key(name),
                         .first = first,
                         .count = std::min(part_elements, recipe.elements() - first),
                         .to = bytes + first * bits(recipe.dtype) / 8});
      named.push_back({.name = std::move(name),
                       .tensor = tensor::ConstTensor(bytes, recipe.dtype, recipe.shape)});
    }
  }
  threads.for_tasks(static_cast<std::int64_t>(parts.size()), [&](std::int64_t task) {
    const Part& part = parts[static_cast<std::size_t>(task)];
    fill(*part.recipe, part.key, part.first, part.count, part.to);
  });
  std::ranges::sort(named, {}, &tensor::NamedTensor::name);
  tensor::write_checkpoint(to, stem, named, max_shard_bytes).value();
  write_config(config, to / config_name);
}

WideGolden::WideGolden(const std::string& name) : folder(wide_goldens_folder() / name) {
  const fs::path path = folder / "golden.json";
  golden = json::parse(read_text(path, max_golden_bytes).value(), path.string()).value();
  const json::Value* const rounded = golden.if_object()->find("rounded_inputs");
  rounded_inputs = rounded != nullptr;
  tolerance = at(rounded_inputs ? *rounded : golden, "tolerance").as_number("tolerance").value();
  checkpoint = read_files(golden);
  if (const json::Value* const plain = golden.if_object()->find("decoded"))
    decoded = read_recipes(*plain);
  for (const json::Member& adapter :
       at(golden, "adapters").as_object("adapters").value()->members())
    adapters[adapter.key] = read_files(adapter.value);
}

void WideGolden::write(const fs::path& to, ThreadPool& threads) const {
  checkpoint.write(to, "config.json", "model", threads);
  for (const auto& [name, files] : adapters)
    files.write(to / "adapters" / name, "adapter_config.json", "adapter_model", threads);
}

}  // namespace motley::wide_tests
