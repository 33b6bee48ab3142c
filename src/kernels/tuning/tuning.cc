#include "kernels/tuning/tuning.h"

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <span>
#include <utility>

#include "base/cat.h"
#include "base/json/json.h"

namespace motley::kernels {
namespace {

constexpr std::int64_t version = 1;
constexpr std::string_view version_key = "motley_tuning";
constexpr std::string_view shared_shrinks_key = "shared_shrinks_from";
constexpr std::string_view remedy = "make the file again with motley bench MODEL --tune --output F";
constexpr std::int64_t max_number = std::int64_t{1} << 40;
constexpr std::size_t max_entries = 10'000;

Error wrong(std::string what, std::string_view where) {
  return {ErrorCode::bad_file, std::move(what), std::string(where), std::string(remedy)};
}

Error as_wrong(const Error& error) { return wrong(error.what(), error.where()); }

// An object of a file whose keys are all read.
class Fields {
 public:
  // `optional`: a key that may be absent.
  static Result<Fields> open(const json::Value& value, std::string_view where,
                             std::initializer_list<std::string_view> keys,
                             std::string_view optional = {}) {
    const auto object = value.as_object(where);
    if (!object.ok()) return as_wrong(object.error());
    for (const json::Member& member : (*object)->members()) {
      const bool known = member.key == optional && !optional.empty();
      if (!known && std::ranges::find(keys, member.key) == keys.end())
        return wrong(cat("unknown key ", quote(member.key)), where);
    }
    for (const std::string_view key : keys) {
      if (!(*object)->contains(key)) return wrong(cat("no key ", quote(key)), where);
    }
    return Fields(**object, where);
  }

  bool has(std::string_view key) const { return object_->contains(key); }
  const json::Value& value(std::string_view key) const { return *object_->find(key); }
  std::string place(std::string_view key) const { return cat(where_, ", ", key); }

  Result<std::int64_t> number(std::string_view key, std::int64_t least) const {
    return integer(value(key), place(key), least);
  }
  Result<std::string> text(std::string_view key) const {
    const auto text = value(key).as_string(place(key));
    if (!text.ok()) return as_wrong(text.error());
    return **text;
  }
  Result<const json::Array*> array(std::string_view key) const {
    const auto array = value(key).as_array(place(key));
    if (!array.ok()) return as_wrong(array.error());
    if ((*array)->size() > max_entries)
      return wrong(cat((*array)->size(), " entries, more than ", max_entries), place(key));
    return *array;
  }

  static Result<std::int64_t> integer(const json::Value& value, std::string_view where,
                                      std::int64_t least) {
    const auto number = value.as_integer(where);
    if (!number.ok()) return as_wrong(number.error());
    if (*number < least || *number > max_number)
      return wrong(cat(*number, " is not from ", least, " to ", max_number), where);
    return *number;
  }

 private:
  Fields(const json::Object& object, std::string_view where) : object_(&object), where_(where) {}

  const json::Object* object_;
  std::string where_;
};

Result<std::vector<std::int64_t>> read_integers(const Fields& fields, std::string_view key,
                                                std::int64_t least) {
  MOTLEY_TRY(const json::Array* const array, fields.array(key));
  std::vector<std::int64_t> numbers;
  for (const json::Value& each : *array) {
    MOTLEY_TRY(numbers.emplace_back(),
               Fields::integer(each, cat(fields.place(key), "[", numbers.size() - 1, "]"), least));
  }
  return numbers;
}

Result<WeightKind> read_kind(const Fields& fields) {
  MOTLEY_TRY(const std::string text, fields.text("format"));
  std::vector<std::string_view> names;
  for (const WeightKind kind : all_weight_kinds) {
    if (name(kind) == text) return kind;
    names.push_back(name(kind));
  }
  return wrong(cat("unknown format ", quote(text), ", which is none of ", join(names)),
               fields.place("format"));
}

Result<std::vector<TunedRow>> read_rows(const Fields& fields, std::string_view key) {
  MOTLEY_TRY(const json::Array* const array, fields.array(key));
  std::vector<TunedRow> rows;
  for (const json::Value& each : *array) {
    const std::string where = cat(fields.place(key), "[", rows.size(), "]");
    MOTLEY_TRY(const Fields row, Fields::open(each, where, {"up_to", "kernel"}));
    TunedRow read;
    if (!row.value("up_to").is_null()) {
      MOTLEY_TRY(read.up_to, row.number("up_to", 1));
    }
    MOTLEY_TRY(read.kernel, row.text("kernel"));
    if (!rows.empty() && read.up_to <= rows.back().up_to)
      return wrong("rows that do not ascend", row.place("up_to"));
    rows.push_back(std::move(read));
  }
  return rows;
}

Result<MeasuredTimes> read_times(const Fields& fields) {
  const std::string where = fields.place("measured_us");
  MOTLEY_TRY(const Fields measured,
             Fields::open(fields.value("measured_us"), where, {"rows", "kernels"}));
  MeasuredTimes times;
  MOTLEY_TRY(times.rows, read_integers(measured, "rows", 1));
  if (std::ranges::adjacent_find(times.rows, std::greater_equal<>()) != times.rows.end())
    return wrong("rows that do not ascend", measured.place("rows"));
  const std::string place = measured.place("kernels");
  const auto kernels = measured.value("kernels").as_object(place);
  if (!kernels.ok()) return as_wrong(kernels.error());
  for (const json::Member& member : (*kernels)->members()) {
    const std::string own = cat(place, ", ", printable(member.key));
    const auto list = member.value.as_array(own);
    if (!list.ok()) return as_wrong(list.error());
    if ((*list)->size() != times.rows.size())
      return wrong(cat((*list)->size(), " times of ", times.rows.size(), " numbers of rows"), own);
    MeasuredTimes::Candidate candidate{.name = member.key, .us = {}};
    for (const json::Value& each : **list) {
      if (each.is_null()) {
        candidate.us.emplace_back();
        continue;
      }
      const auto us = each.as_number(own);
      if (!us.ok()) return as_wrong(us.error());
      if (!(*us > 0)) return wrong("a time that is not above zero", own);
      candidate.us.emplace_back(*us);
    }
    times.candidates.push_back(std::move(candidate));
  }
  return times;
}

Result<TunedDense> read_dense(const json::Value& value, std::string_view where) {
  MOTLEY_TRY(const Fields fields,
             Fields::open(value, where,
                          {"format", "group", "inputs", "outputs", "kernels", "measured_us"}));
  TunedDense dense;
  MOTLEY_TRY(dense.shape.kind, read_kind(fields));
  MOTLEY_TRY(dense.shape.group, fields.number("group", 0));
  MOTLEY_TRY(dense.shape.inputs, fields.number("inputs", 1));
  MOTLEY_TRY(dense.shape.outputs, read_integers(fields, "outputs", 1));
  if (dense.shape.outputs.empty()) return wrong("no product", fields.place("outputs"));
  MOTLEY_TRY(dense.rows, read_rows(fields, "kernels"));
  MOTLEY_TRY(dense.times, read_times(fields));
  return dense;
}

Result<TunedExperts> read_experts(const json::Value& value, std::string_view where) {
  MOTLEY_TRY(const Fields fields,
             Fields::open(value, where,
                          {"bits", "experts", "hidden", "intermediate", "experts_per_token",
                           "adapters", "kernels", "measured_us"}));
  TunedExperts experts;
  MOTLEY_TRY(experts.shape.bits, fields.number("bits", 1));
  MOTLEY_TRY(experts.shape.experts, fields.number("experts", 1));
  MOTLEY_TRY(experts.shape.hidden, fields.number("hidden", 1));
  MOTLEY_TRY(experts.shape.intermediate, fields.number("intermediate", 1));
  MOTLEY_TRY(experts.shape.experts_per_token, fields.number("experts_per_token", 1));
  const auto adapters = fields.value("adapters").as_boolean(fields.place("adapters"));
  if (!adapters.ok()) return as_wrong(adapters.error());
  experts.shape.adapters = *adapters;
  MOTLEY_TRY(experts.rows, read_rows(fields, "kernels"));
  MOTLEY_TRY(experts.times, read_times(fields));
  return experts;
}

// The entries of a list, no shape twice.
template <class Entry>
Result<std::vector<Entry>> read_entries(const Fields& fields, std::string_view key,
                                        Result<Entry> (*read)(const json::Value&,
                                                              std::string_view)) {
  MOTLEY_TRY(const json::Array* const array, fields.array(key));
  std::vector<Entry> entries;
  for (const json::Value& each : *array) {
    const std::string where = cat(fields.place(key), "[", entries.size(), "]");
    MOTLEY_TRY(Entry entry, read(each, where));
    if (std::ranges::find(entries, entry.shape, &Entry::shape) != entries.end())
      return wrong("a shape that stands above already", where);
    entries.push_back(std::move(entry));
  }
  return entries;
}

json::Value written(const std::vector<TunedRow>& rows) {
  json::Array array;
  for (const TunedRow& row : rows) {
    json::Object object;
    if (row.up_to == TunedRow::any) {
      object.add("up_to", nullptr);
    } else {
      object.add("up_to", row.up_to);
    }
    object.add("kernel", row.kernel);
    array.emplace_back(std::move(object));
  }
  return array;
}

json::Value written(std::span<const std::int64_t> numbers) {
  json::Array array;
  for (const std::int64_t number : numbers) array.emplace_back(number);
  return array;
}

json::Value written(const MeasuredTimes& times) {
  json::Object kernels;
  for (const MeasuredTimes::Candidate& candidate : times.candidates) {
    json::Array array;
    for (const std::optional<double>& us : candidate.us) {
      if (us) {
        array.emplace_back(*us);
      } else {
        array.emplace_back(nullptr);
      }
    }
    kernels.add(candidate.name, std::move(array));
  }
  json::Object object;
  object.add("rows", written(std::span(times.rows)));
  object.add("kernels", std::move(kernels));
  return object;
}

json::Value written(const TunedDense& dense) {
  json::Object object;
  object.add("format", name(dense.shape.kind));
  object.add("group", dense.shape.group);
  object.add("inputs", dense.shape.inputs);
  object.add("outputs", written(std::span(dense.shape.outputs)));
  object.add("kernels", written(dense.rows));
  object.add("measured_us", written(dense.times));
  return object;
}

json::Value written(const TunedExperts& experts) {
  json::Object object;
  object.add("bits", experts.shape.bits);
  object.add("experts", experts.shape.experts);
  object.add("hidden", experts.shape.hidden);
  object.add("intermediate", experts.shape.intermediate);
  object.add("experts_per_token", experts.shape.experts_per_token);
  object.add("adapters", experts.shape.adapters);
  object.add("kernels", written(experts.rows));
  object.add("measured_us", written(experts.times));
  return object;
}

template <class Entry>
json::Value written_all(const std::vector<Entry>& entries) {
  json::Array array;
  for (const Entry& entry : entries) array.emplace_back(written(entry));
  return array;
}

}  // namespace

Result<Tuning> parse_tuning(std::string_view text, std::string_view where) {
  const auto value = json::parse(text, where, {.depth = 8, .values = 1'000'000});
  if (!value.ok()) return as_wrong(value.error());
  MOTLEY_TRY(const Fields fields,
             Fields::open(*value, where,
                          {version_key, "card", "driver", "date", "model", "dense", "experts"},
                          shared_shrinks_key));
  MOTLEY_TRY(const std::int64_t written_as, fields.number(version_key, 0));
  if (written_as != version)
    return wrong(cat("version ", written_as, " of the format, where this program reads ", version),
                 fields.place(version_key));
  Tuning tuning{.file = std::string(where)};
  MOTLEY_TRY(tuning.card, fields.text("card"));
  MOTLEY_TRY(tuning.driver, fields.text("driver"));
  MOTLEY_TRY(tuning.date, fields.text("date"));
  MOTLEY_TRY(tuning.model, fields.text("model"));
  MOTLEY_TRY(tuning.dense, read_entries(fields, "dense", read_dense));
  MOTLEY_TRY(tuning.experts, read_entries(fields, "experts", read_experts));
  if (fields.has(shared_shrinks_key)) {
    MOTLEY_TRY(tuning.shared_shrinks_from, fields.number(shared_shrinks_key, 0));
  }
  return tuning;
}

std::string write_tuning(const Tuning& tuning) {
  json::Object object;
  object.add(std::string(version_key), version);
  object.add("card", tuning.card);
  object.add("driver", tuning.driver);
  object.add("date", tuning.date);
  object.add("model", tuning.model);
  object.add("dense", written_all(tuning.dense));
  object.add("experts", written_all(tuning.experts));
  if (tuning.shared_shrinks_from)
    object.add(std::string(shared_shrinks_key), *tuning.shared_shrinks_from);
  return json::write_pretty(object) + "\n";
}

}  // namespace motley::kernels
