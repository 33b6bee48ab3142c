#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"

namespace motley::model {

// Reads the settings of a config.json. The first error is kept, and later reads return harmless
// values, so that a family need not check after each; result() reports the error.
class ConfigReader {
 public:
  // `where` names the file in messages.
  ConfigReader(const json::Object& object, std::string where)
      : object_(&object), where_(std::move(where)) {}

  // A whole number in [least, most], under the first of these names that is present and not null.
  std::int64_t integer(std::initializer_list<std::string_view> names, std::int64_t least = 1);
  std::int64_t integer(std::string_view name, std::int64_t least = 1) {
    return integer({name}, least);
  }
  std::int64_t integer_or(std::string_view name, std::int64_t fallback, std::int64_t least = 0);
  double number(std::string_view name);
  double number_or(std::string_view name, double fallback);
  bool boolean_or(std::string_view name, bool fallback);
  std::string text_or(std::string_view name, std::string_view fallback);
  std::vector<std::int64_t> integers_or_empty(std::string_view name);
  std::vector<std::string> texts_or_empty(std::string_view name);

  // Present and not null.
  bool has(std::string_view name) const { return find(name) != nullptr; }
  // A reader for a nested object; nothing if it is absent or null.
  std::optional<ConfigReader> inner(std::string_view name);

  // Refuses a setting for a reason that is evident from the config.
  void refuse(ErrorCode code, std::string what, std::string fix);
  // Copies the error of a nested reader.
  void adopt(const ConfigReader& inner);

  Result<void> result() const;

 private:
  const json::Value* find(std::string_view name) const;
  template <class T>
  T keep(Result<T> value, T fallback);
  std::string place(std::string_view name) const;

  const json::Object* object_;
  std::string where_;
  std::optional<Error> error_;
};

}  // namespace motley::model
