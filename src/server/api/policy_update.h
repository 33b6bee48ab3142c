#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json/json.h"
#include "base/result.h"

namespace motley::server {

// ART's update of an adapter whose requests go on with the new content: of the adapter `slot`, from
// the folder `path`.
struct PolicyUpdate {
  std::string operation_id = {};  // empty: none
  std::string model_name;         // as ART names this policy
  std::string slot;
  std::string path;
  std::string generation_id = {};  // empty: none
  std::optional<std::string> expected_generation_id = {};
  std::int64_t policy_version = 0;

  // Of the adapter's content: the generation and the policy, "GENERATION@POLICY".
  std::string version() const;
  // Whether it may replace this version.
  Result<void> may_replace(std::string_view version) const;
};

Result<PolicyUpdate> read_policy_update(const json::Value& body);

// The number after the last '@' of a version or of an adapter's name; nothing where there is none.
std::optional<std::int64_t> policy_of(std::string_view name);

}  // namespace motley::server
