#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"

namespace motley::server {

// Reads the fields of a request's object one by one, each with its type and range; null counts as
// absent. Errors have the field's path ("stream_options.include_usage"), which becomes `param` of
// the answer.
class Fields {
 public:
  // The object must outlive the reader. `path` is that of the object, "" for the body itself.
  // Fields that are not read are added to `ignored`, or refused if that is null.
  explicit Fields(const json::Object& object, std::string path = "",
                  std::vector<std::string>* ignored = nullptr)
      : object_(&object), path_(std::move(path)), ignored_(ignored) {}

  // A reader for a nested object; `key` may be a path.
  Fields inside(const json::Object& object, std::string_view key) const {
    return Fields(object, place(key), ignored_);
  }

  // The value, or null if it is absent.
  const json::Value* take(std::string_view key);
  Result<std::optional<bool>> boolean(std::string_view key);
  Result<std::optional<std::int64_t>> integer(
      std::string_view key, std::int64_t least = std::numeric_limits<std::int64_t>::min(),
      std::int64_t most = std::numeric_limits<std::int64_t>::max());
  Result<std::optional<double>> number(std::string_view key, double least, double most);
  Result<std::optional<std::string>> string(std::string_view key);
  // A list of strings, or a single string.
  Result<std::vector<std::string>> strings(std::string_view key, std::size_t most);
  Result<std::vector<std::int32_t>> token_ids(std::string_view key, std::int64_t vocabulary);
  Result<const json::Object*> object(std::string_view key);

  // Treats the field as not read.
  void leave(std::string_view key) { std::erase(known_, key); }

  // Accepts fields that have no effect.
  void accept(std::initializer_list<std::string_view> keys);
  void accept(std::span<const std::string_view> keys);

  // Call after the last field: handles fields that were not read.
  Result<void> finish() const;

  std::string place(std::string_view key) const;

 private:
  const json::Object* object_;
  std::string path_;
  std::vector<std::string_view> known_;
  std::vector<std::string>* ignored_;
};

Error wrong(std::string what, std::string place, std::string fix);

// A number in a list or a field; `place` is its path.
Result<double> read_number(const json::Value& value, std::string_view place, double least,
                           double most);
Result<std::int64_t> read_integer(const json::Value& value, std::string_view place,
                                  std::int64_t least, std::int64_t most);

}  // namespace motley::server
