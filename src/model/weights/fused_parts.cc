#include "model/weights/fused_parts.h"

#include "base/cat.h"

namespace motley::model {

using tensor::ConstTensor;

namespace {

constexpr std::string_view weight_prefix = "weight";

// "weight_scale" is stored as "<module>_scale" where experts are parameters and not modules;
// "weight" as the parameter itself.
std::string parameter_name(std::string_view module, std::string_view part) {
  if (part.starts_with(weight_prefix)) part.remove_prefix(weight_prefix.size());
  if (part.empty() || part.starts_with('_')) return cat(module, part);
  return cat(module, "_", part);
}

}  // namespace

bool FusedParts::has(const tensor::Checkpoint& checkpoint, std::string_view module) {
  for (const std::string_view scale : {"weight_scale", "weight_scale_inv"}) {
    if (checkpoint.find(cat(module, ".", scale)) != nullptr) return true;
    if (checkpoint.find(parameter_name(module, scale)) != nullptr) return true;
  }
  return false;
}

std::optional<std::string> FusedParts::stored_name(std::string_view part) const {
  for (std::string name : {cat(module_, ".", part), parameter_name(module_, part)}) {
    if (checkpoint_.find(name) != nullptr) return name;
  }
  return std::nullopt;
}

std::optional<ConstTensor> FusedParts::share(std::string_view part, std::int64_t expert,
                                             Rows rows) const {
  const std::optional<std::string> name = stored_name(part);
  if (!name) return std::nullopt;
  const ConstTensor all = checkpoint_.find(*name)->tensor();
  // A number for all experts, and sizes, which are not by expert.
  if (all.shape().rank() == 0 || all.dim(0) != experts_ || part == "weight_shape") return all;
  const ConstTensor own = all.select(expert);
  if (rows == Rows::all || own.shape().rank() == 0 || own.dim(0) % 2 != 0) return own;
  const std::int64_t half = own.dim(0) / 2;
  return rows == Rows::first_half ? own.slice(0, 0, half) : own.slice(0, half, 2 * half);
}

}  // namespace motley::model
