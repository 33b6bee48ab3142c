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

// Reads the fields of an object of a request one by one, each with its kind and range; null is as
// good as absent. Errors stand at the field's path ("stream_options.include_usage"), which is what
// `param` of the answer says.
class Fields {
 public:
  // The object must outlive the reader. `path` is that of the object, "" for the body itself.
  // Fields that no reader takes are noted in `ignored`; where that is null they are refused.
  explicit Fields(const json::Object& object, std::string path = "",
                  std::vector<std::string>* ignored = nullptr)
      : object_(&object), path_(std::move(path)), ignored_(ignored) {}

  // The reader of an object in here; `key` may be a path.
  Fields inside(const json::Object& object, std::string_view key) const {
    return Fields(object, place(key), ignored_);
  }

  // The value, or null where it is absent.
  const json::Value* take(std::string_view key);
  Result<std::optional<bool>> boolean(std::string_view key);
  Result<std::optional<std::int64_t>> integer(
      std::string_view key, std::int64_t least = std::numeric_limits<std::int64_t>::min(),
      std::int64_t most = std::numeric_limits<std::int64_t>::max());
  Result<std::optional<double>> number(std::string_view key, double least, double most);
  Result<std::optional<std::string>> string(std::string_view key);
  // A list of strings, or one alone.
  Result<std::vector<std::string>> strings(std::string_view key, std::size_t most);
  Result<std::vector<std::int32_t>> token_ids(std::string_view key, std::int64_t vocabulary);
  Result<const json::Object*> object(std::string_view key);

  // As if it had not been taken.
  void leave(std::string_view key) { std::erase(known_, key); }

  // Fields that are taken note of and change nothing.
  void accept(std::initializer_list<std::string_view> keys);
  void accept(std::span<const std::string_view> keys);

  // Behind the last field: deals with those that were not taken. Null asks for nothing.
  Result<void> finish() const;

  std::string place(std::string_view key) const;

 private:
  const json::Object* object_;
  std::string path_;
  std::vector<std::string_view> known_;
  std::vector<std::string>* ignored_;
};

Error wrong(std::string what, std::string place, std::string fix);

// One number of a list or a field; `place` is its path.
Result<double> read_number(const json::Value& value, std::string_view place, double least,
                           double most);
Result<std::int64_t> read_integer(const json::Value& value, std::string_view place,
                                  std::int64_t least, std::int64_t most);

}  // namespace motley::server
