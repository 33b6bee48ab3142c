#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "base/result.h"
#include "model/config/config.h"

namespace motley::model {

// A released model's sizes under a short name, without its weights, for `motley bench`.
struct NamedShape {
  std::string_view name;
  std::string_view config;  // its config.json, except for the number of layers
  std::int64_t layers = 0;
  bool windows = false;  // in every second layer, which the config lists
};
std::span<const NamedShape> named_shapes();

// The shape's config, cut to its first layers if it has more. Experts are stored one by one, even
// if the released files fuse them.
Result<Config> shape_config(std::string_view name, std::optional<std::int64_t> layers);

}  // namespace motley::model
