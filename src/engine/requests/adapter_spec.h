#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "lora/files/load.h"

namespace motley::engine {

// The source of an adapter.
struct AdapterSpec {
  std::string name;
  std::filesystem::path path;
  bool pinned = false;  // never evicted
  lora::LoadOptions load = {};
  // Files that the server holds: every load reads these, never a folder. Null: those at the path.
  std::shared_ptr<const lora::AdapterContent> content = {};
  std::string version = {};  // as its maker names it; empty: the hash of the content
  // The version that the load is to replace: with another one there it fails with `conflict`. An
  // empty one: there must be no adapter of the name. Nothing: any.
  std::optional<std::string> expected_version = {};
  // Requests that run with what it replaces go on with it, and keep their keys and values so far;
  // else they end with what they began with.
  bool switches = false;
};

}  // namespace motley::engine
