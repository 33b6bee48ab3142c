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

inline constexpr std::uint64_t max_shard_bytes = std::uint64_t{1} << 30;

void write_config(const json::Value& config, const std::filesystem::path& to);

// The files of a checkpoint or an adapter.
struct Files {
  std::string seed;
  json::Value config;
  std::vector<Recipe> tensors;

  std::uint64_t key(std::string_view name) const;
  // Writes `config_name` and `stem`.safetensors, in shards of at most max_shard_bytes.
  void write(const std::filesystem::path& folder, std::string_view config_name,
             std::string_view stem, ThreadPool& threads) const;
};

struct WideGolden {
  explicit WideGolden(const std::string& name);

  std::filesystem::path folder;
  json::Value golden;
  // Activations are quantised as the checkpoint says; else they stay as they are.
  bool rounded_inputs = false;
  // In float32: the largest difference that is no error; the largest mean one with rounded inputs,
  // some of which float32 rounds the other way.
  double tolerance = 0;
  Files checkpoint;
  // Plain tensors that quantised ones stand for, where a test compares with these.
  std::vector<Recipe> decoded;
  std::map<std::string, Files> adapters;

  // The checkpoint, and each adapter in adapters/NAME.
  void write(const std::filesystem::path& to, ThreadPool& threads) const;
};

}  // namespace motley::wide_tests
