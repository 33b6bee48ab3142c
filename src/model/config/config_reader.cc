#include "model/config/config_reader.h"

#include <utility>

#include "base/cat.h"

namespace motley::model {
namespace {

// Larger than any size of a model; keeps products of two sizes within 64 bits.
constexpr std::int64_t largest_size = 1'000'000'000;

}  // namespace

std::int64_t ConfigReader::integer(std::initializer_list<std::string_view> names,
                                   std::int64_t least) {
  for (const std::string_view name : names) {
    const json::Value* const value = find(name);
    if (value == nullptr) continue;
    const std::int64_t number = keep(value->as_integer(place(name)), least);
    if (number < least || number > largest_size) {
      refuse(ErrorCode::bad_file, cat(name, " is ", number),
             cat("it must be from ", least, " to ", largest_size));
      return least;
    }
    return number;
  }
  refuse(ErrorCode::bad_file, cat("no ", *names.begin()), "add it; it belongs to this model_type");
  return least;
}

std::int64_t ConfigReader::integer_or(std::string_view name, std::int64_t fallback,
                                      std::int64_t least) {
  return has(name) ? integer({name}, least) : fallback;
}

double ConfigReader::number(std::string_view name) {
  if (const json::Value* const value = find(name)) return keep(value->as_number(place(name)), 0.0);
  refuse(ErrorCode::bad_file, cat("no ", name), "add it; it belongs to this model_type");
  return 0.0;
}

double ConfigReader::number_or(std::string_view name, double fallback) {
  return has(name) ? number(name) : fallback;
}

bool ConfigReader::boolean_or(std::string_view name, bool fallback) {
  const json::Value* const value = find(name);
  return value == nullptr ? fallback : keep(value->as_boolean(place(name)), fallback);
}

std::string ConfigReader::text_or(std::string_view name, std::string_view fallback) {
  const json::Value* const value = find(name);
  if (value == nullptr) return std::string(fallback);
  const auto text = value->as_string(place(name));
  if (text.ok()) return **text;
  return keep(Result<std::string>(text.error()), std::string(fallback));
}

std::vector<std::int64_t> ConfigReader::integers_or_empty(std::string_view name) {
  std::vector<std::int64_t> numbers;
  const json::Value* const value = find(name);
  if (value == nullptr) return numbers;
  const auto list = value->as_array(place(name));
  if (!list.ok()) return keep(Result<std::vector<std::int64_t>>(list.error()), numbers);
  for (const json::Value& item : **list)
    numbers.push_back(keep(item.as_integer(place(name)), std::int64_t{0}));
  return numbers;
}

std::vector<std::string> ConfigReader::texts_or_empty(std::string_view name) {
  std::vector<std::string> texts;
  const json::Value* const value = find(name);
  if (value == nullptr) return texts;
  const auto list = value->as_array(place(name));
  if (!list.ok()) return keep(Result<std::vector<std::string>>(list.error()), texts);
  for (const json::Value& item : **list) {
    const auto text = item.as_string(place(name));
    texts.push_back(text.ok() ? **text : keep(Result<std::string>(text.error()), std::string()));
  }
  return texts;
}

std::optional<ConfigReader> ConfigReader::inner(std::string_view name) {
  const json::Value* const value = find(name);
  if (value == nullptr) return std::nullopt;
  const auto object = value->as_object(place(name));
  if (object.ok()) return ConfigReader(**object, place(name));
  keep(Result<int>(object.error()), 0);
  return std::nullopt;
}

void ConfigReader::refuse(ErrorCode code, std::string what, std::string fix) {
  if (!error_) error_ = Error(code, std::move(what), where_, std::move(fix));
}

void ConfigReader::adopt(const ConfigReader& inner) {
  if (!error_) error_ = inner.error_;
}

Result<void> ConfigReader::result() const {
  if (error_) return *error_;
  return {};
}

const json::Value* ConfigReader::find(std::string_view name) const {
  return object_->find_set(name);
}

template <class T>
T ConfigReader::keep(Result<T> value, T fallback) {
  if (value.ok()) return *std::move(value);
  if (!error_) error_ = std::move(value).error().as(ErrorCode::bad_file);
  return fallback;
}

std::string ConfigReader::place(std::string_view name) const { return cat(where_, ", ", name); }

}  // namespace motley::model
