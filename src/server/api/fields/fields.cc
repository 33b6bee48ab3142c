#include "server/api/fields/fields.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/cat.h"
#include "server/api/fields/notices.h"

namespace motley::server {
namespace {

constexpr std::size_t longest_name = 100;  // of an unknown field's name, as it is repeated

template <class Number, class Bound>
Error out_of_range(std::string_view place, Number value, Bound least, Bound most) {
  const bool unbounded = most == std::numeric_limits<Bound>::max();
  return {ErrorCode::invalid_argument, cat(value, " is out of range"), std::string(place),
          unbounded ? cat("use ", least, " or more") : cat("use ", least, " to ", most)};
}

// Errors of json::Value already have the place.
template <class T>
Result<std::optional<T>> optional_of(Result<T> result) {
  if (!result.ok()) return std::move(result).error();
  return std::optional<T>(*std::move(result));
}

}  // namespace

Error wrong(std::string what, std::string place, std::string fix) {
  return {ErrorCode::invalid_argument, std::move(what), std::move(place), std::move(fix)};
}

Result<double> read_number(const json::Value& value, std::string_view place, double least,
                           double most) {
  MOTLEY_TRY(const double number, value.as_number(place));
  if (!(number >= least && number <= most)) return out_of_range(place, number, least, most);
  return number;
}

Result<std::int64_t> read_integer(const json::Value& value, std::string_view place,
                                  std::int64_t least, std::int64_t most) {
  if (const std::int64_t* const whole = value.if_integer()) {
    if (*whole < least || *whole > most) return out_of_range(place, *whole, least, most);
    return *whole;
  }
  // 16.0 and 1e3 are whole numbers, too, up to those that a double represents exactly.
  constexpr double exact = 9007199254740992.0;
  MOTLEY_TRY(const double number, value.as_number(place));
  if (number != std::floor(number))
    return Error(ErrorCode::invalid_argument, cat(number, " is not a whole number"),
                 std::string(place), "give an integer");
  if (std::abs(number) > exact || number < static_cast<double>(least) ||
      number > static_cast<double>(most))
    return out_of_range(place, number, least, most);
  return static_cast<std::int64_t>(number);
}

std::string Fields::place(std::string_view key) const {
  return path_.empty() ? std::string(key) : cat(path_, ".", key);
}

const json::Value* Fields::take(std::string_view key) {
  known_.push_back(key);
  return object_->find_set(key);
}

Result<std::optional<bool>> Fields::boolean(std::string_view key) {
  const json::Value* const value = take(key);
  if (value == nullptr) return std::optional<bool>();
  return optional_of(value->as_boolean(place(key)));
}

Result<std::optional<std::int64_t>> Fields::integer(std::string_view key, std::int64_t least,
                                                    std::int64_t most) {
  const json::Value* const value = take(key);
  if (value == nullptr) return std::optional<std::int64_t>();
  return optional_of(read_integer(*value, place(key), least, most));
}

Result<std::optional<double>> Fields::number(std::string_view key, double least, double most) {
  const json::Value* const value = take(key);
  if (value == nullptr) return std::optional<double>();
  return optional_of(read_number(*value, place(key), least, most));
}

Result<std::optional<std::string>> Fields::string(std::string_view key) {
  const json::Value* const value = take(key);
  if (value == nullptr) return std::optional<std::string>();
  MOTLEY_TRY(const std::string* const text, value->as_string(place(key)));
  return std::optional(*text);
}

Result<std::vector<std::string>> Fields::strings(std::string_view key, std::size_t most) {
  std::vector<std::string> list;
  const json::Value* const value = take(key);
  if (value == nullptr) return list;
  if (const std::string* const one = value->if_string()) return std::vector{*one};
  MOTLEY_TRY(const json::Array* const values, value->as_array(place(key)));
  if (values->size() > most)
    return Error(ErrorCode::invalid_argument, cat(values->size(), " strings"), place(key),
                 cat("give at most ", most));
  for (std::size_t i = 0; i < values->size(); ++i) {
    MOTLEY_TRY(const std::string* const text, (*values)[i].as_string(cat(place(key), "[", i, "]")));
    list.push_back(*text);
  }
  return list;
}

Result<std::vector<std::int32_t>> Fields::token_ids(std::string_view key, std::int64_t vocabulary) {
  std::vector<std::int32_t> ids;
  const json::Value* const value = take(key);
  if (value == nullptr) return ids;
  MOTLEY_TRY(const json::Array* const values, value->as_array(place(key)));
  ids.reserve(values->size());
  for (std::size_t i = 0; i < values->size(); ++i) {
    MOTLEY_TRY(const std::int64_t id,
               read_integer((*values)[i], cat(place(key), "[", i, "]"), 0, vocabulary - 1));
    ids.push_back(static_cast<std::int32_t>(id));
  }
  return ids;
}

Result<const json::Object*> Fields::object(std::string_view key) {
  const json::Value* const value = take(key);
  if (value == nullptr) return static_cast<const json::Object*>(nullptr);
  return value->as_object(place(key));
}

void Fields::accept(std::initializer_list<std::string_view> keys) {
  known_.insert(known_.end(), keys.begin(), keys.end());
}

void Fields::accept(std::span<const std::string_view> keys) {
  known_.insert(known_.end(), keys.begin(), keys.end());
}

// A client may send any number of fields. The loop ends at the first unknown one after the list is
// full, so that the work is bounded by the known fields and the list.
Result<void> Fields::finish() const {
  for (const json::Member& member : object_->members()) {
    if (member.value.is_null()) continue;
    if (std::ranges::find(known_, std::string_view(member.key)) != known_.end()) continue;
    if (ignored_ != nullptr && serving::notices_full(*ignored_)) break;
    const std::string where = place(printable(member.key.substr(0, longest_name)));
    if (ignored_ == nullptr)
      return Error(ErrorCode::invalid_argument, cat("unknown field ", quote(member.key)), where,
                   "leave it out, or mend its name");
    serving::add_notice(where, *ignored_);
  }
  return {};
}

}  // namespace motley::server
