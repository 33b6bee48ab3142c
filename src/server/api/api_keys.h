#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/http/messages/principal.h"

namespace motley::server {

// The keys of the API; without keys it is open to all.
class ApiKeys {
 public:
  struct Key {
    std::string text;
    std::shared_ptr<const Principal> holder = {};  // null: requests go by their address
  };

  ApiKeys() = default;
  explicit ApiKeys(const std::vector<std::string>& keys) {
    for (const std::string& key : keys) keys_.push_back({.text = key});
  }

  // One key per line; empty lines and lines that begin with # are skipped. A file without keys is
  // refused, because it would open an API that is meant to be closed.
  static Result<ApiKeys> load(const std::filesystem::path& file);
  // JSON: a list of {"key", "name", "adapters", "weight"}.
  static Result<ApiKeys> load_holders(const std::filesystem::path& file);
  static Result<ApiKeys> parse_holders(std::string_view text, std::string_view where);

  // Refuses a key that both have.
  Result<void> add(ApiKeys others);

  bool required() const { return !keys_.empty(); }
  std::size_t count() const { return keys_.size(); }
  // The key in an Authorization header, "Bearer KEY", or an X-Api-Key header; either may be empty.
  // Null: none of these. The time it takes does not reveal how much of a key is right.
  const Key* find(std::string_view authorization, std::string_view api_key = {}) const;

 private:
  const Key* holds(std::string_view given) const;

  std::vector<Key> keys_;
};

// The keys of a running server, which can be replaced. Thread-safe.
class CurrentApiKeys {
 public:
  explicit CurrentApiKeys(ApiKeys keys) : keys_(std::make_shared<const ApiKeys>(std::move(keys))) {}

  std::shared_ptr<const ApiKeys> get() const {
    const std::lock_guard lock(mutex_);
    return keys_;
  }
  void replace(ApiKeys keys) {
    auto made = std::make_shared<const ApiKeys>(std::move(keys));
    const std::lock_guard lock(mutex_);
    keys_.swap(made);
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const ApiKeys> keys_;
};

}  // namespace motley::server
