#include "server/api/suggestions.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/cat.h"
#include "base/spelling.h"
#include "server/api/fields/generation_fields.h"

namespace motley::server {
namespace {

// Words are compared letter by letter with each candidate, and clients choose them freely.
constexpr std::size_t longest_word = 64;
constexpr std::size_t max_candidates = 256;

std::string advice(std::string_view word, std::span<const std::string_view> candidates,
                   std::string_view otherwise) {
  if (word.size() > longest_word) return std::string(otherwise);
  const auto meant = closest(word, candidates.first(std::min(candidates.size(), max_candidates)));
  return meant ? cat("did you mean ", *meant, "? ", otherwise) : std::string(otherwise);
}

}  // namespace

std::string path_advice(std::string_view path, std::span<const std::string_view> paths) {
  return advice(path, paths, "see /v1/models and /");
}

std::string model_advice(std::string_view name, std::string_view base,
                         std::span<const engine::AdapterInfo> adapters) {
  std::vector<std::string_view> names = {base};
  for (const engine::AdapterInfo& each : adapters) names.push_back(each.name);
  return advice(adapter_part(name, base), names, "GET /v1/models lists those there are");
}

Error unknown_model(std::string_view name, std::string_view base,
                    std::span<const engine::AdapterInfo> adapters) {
  return {ErrorCode::not_found, cat("no model ", quote(name)), "model",
          model_advice(name, base, adapters)};
}

}  // namespace motley::server
