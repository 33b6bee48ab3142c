#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "base/system/thread_pool.h"
#include "wide/values.h"

// Goldens of production widths: tests/wide_goldens has recipes and answers, not weights.
namespace motley::wide_tests {

const std::filesystem::path& wide_goldens_folder();
std::vector<std::string> wide_models();

// The files of a checkpoint or an adapter.
struct Files {
  std::string seed;
  json::Value config;
  std::vector<Recipe> tensors;

  std::uint64_t key(std::string_view name) const;
  // Writes `config_name` and `stem`.safetensors, in shards of at most a gigabyte.
  void write(const std::filesystem::path& folder, std::string_view config_name,
             std::string_view stem, ThreadPool& threads) const;
};

struct WideGolden {
  explicit WideGolden(const std::string& name);

  std::filesystem::path folder;
  json::Value golden;
  Files checkpoint;
  std::map<std::string, Files> adapters;

  // The checkpoint, and each adapter in adapters/NAME.
  void write(const std::filesystem::path& to, ThreadPool& threads) const;
};

}  // namespace motley::wide_tests
