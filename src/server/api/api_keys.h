#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace motley::server {

// The keys of the API; without keys it is open to all.
class ApiKeys {
 public:
  ApiKeys() = default;
  explicit ApiKeys(std::vector<std::string> keys) : keys_(std::move(keys)) {}

  // One key per line; empty lines and lines that begin with # are skipped. A file without keys is
  // refused, because it would open an API that is meant to be closed.
  static Result<ApiKeys> load(const std::filesystem::path& file);

  bool required() const { return !keys_.empty(); }
  std::size_t count() const { return keys_.size(); }
  // Checks an Authorization header, "Bearer KEY", or an X-Api-Key header; either may be empty. The
  // time it takes does not reveal how much of a key is right.
  bool allow(std::string_view authorization, std::string_view api_key = {}) const;

 private:
  bool holds(std::string_view given) const;

  std::vector<std::string> keys_;
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
