#include "cli/options/arguments/yaml_file.h"

#include <optional>
#include <utility>
#include <yaml.h>

#include "base/cat.h"

namespace motley::cli {
namespace {

constexpr int max_depth = 8;

// One event of libyaml's parser.
class Event {
 public:
  Event() = default;
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, {})) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~Event() { yaml_event_delete(&event_); }

  yaml_event_t& raw() { return event_; }
  yaml_event_type_t type() const { return event_.type; }
  std::size_t line() const { return event_.start_mark.line + 1; }
  std::string_view scalar() const {
    return {reinterpret_cast<const char*>(event_.data.scalar.value), event_.data.scalar.length};
  }
  bool is_plain() const { return event_.data.scalar.style == YAML_PLAIN_SCALAR_STYLE; }
  bool has_anchor_or_tag() const {
    switch (event_.type) {
      case YAML_ALIAS_EVENT:
        return true;
      case YAML_SCALAR_EVENT:
        return event_.data.scalar.anchor != nullptr || event_.data.scalar.tag != nullptr;
      case YAML_SEQUENCE_START_EVENT:
        return event_.data.sequence_start.anchor != nullptr ||
               event_.data.sequence_start.tag != nullptr;
      case YAML_MAPPING_START_EVENT:
        return event_.data.mapping_start.anchor != nullptr ||
               event_.data.mapping_start.tag != nullptr;
      default:
        return false;
    }
  }

 private:
  yaml_event_t event_ = {};
};

bool is_null(const Event& scalar) {
  const std::string_view text = scalar.scalar();
  return scalar.is_plain() && (text.empty() || text == "~" || text == "null");
}

// What a plain scalar inside a map means in JSON.
json::Value typed(const Event& scalar) {
  const std::string_view text = scalar.scalar();
  if (!scalar.is_plain()) return text;
  if (is_null(scalar)) return {};
  if (text == "true") return true;
  if (text == "false") return false;
  auto number = json::parse(text, "number");
  if (number.ok() &&
      (number->kind() == json::Kind::integer || number->kind() == json::Kind::number))
    return *std::move(number);
  return text;
}

class Reader {
 public:
  Reader(std::string_view text, std::string_view name) : name_(name) {
    ready_ = yaml_parser_initialize(&parser_) != 0;
    // libyaml refuses a null pointer, also of an empty text.
    const char* const data = text.empty() ? "" : text.data();
    if (ready_)
      yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(data),
                                   text.size());
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader() {
    if (ready_) yaml_parser_delete(&parser_);
  }

  Result<std::vector<YamlEntry>> read() {
    MOTLEY_TRY_VOID(next(YAML_STREAM_START_EVENT, "a text"));
    MOTLEY_TRY(Event document, next());
    if (document.type() == YAML_STREAM_END_EVENT) return std::vector<YamlEntry>();
    MOTLEY_TRY(const Event start, next());
    const bool is_empty = start.type() == YAML_SCALAR_EVENT && is_null(start);
    std::vector<YamlEntry> entries;
    if (start.type() == YAML_MAPPING_START_EVENT) {
      MOTLEY_TRY(entries, read_entries());
    } else if (!is_empty) {
      return wrong(start.line(), "not a map of options", "write KEY: VALUE on each line");
    }
    MOTLEY_TRY_VOID(next(YAML_DOCUMENT_END_EVENT, "the end of the document"));
    MOTLEY_TRY(const Event end, next());
    if (end.type() != YAML_STREAM_END_EVENT)
      return wrong(end.line(), "a second document", "write all options into one");
    return entries;
  }

 private:
  Error wrong(std::size_t line, std::string what, std::string fix) const {
    return {ErrorCode::bad_file, std::move(what), cat(name_, ":", line), std::move(fix)};
  }

  Result<Event> next() {
    Event event;
    if (!ready_ || yaml_parser_parse(&parser_, &event.raw()) == 0) {
      if (!ready_ || parser_.error == YAML_MEMORY_ERROR)
        return Error(ErrorCode::out_of_memory, "not enough memory", std::string(name_),
                     "free some memory");
      const char* const problem = parser_.problem == nullptr ? "broken" : parser_.problem;
      return wrong(parser_.problem_mark.line + 1, cat("not YAML: ", problem),
                   "mend the file; a text with ': ' or '#' needs quotes");
    }
    if (event.has_anchor_or_tag())
      return wrong(event.line(), "an anchor, an alias or a tag", "write the value out");
    return event;
  }

  Result<void> next(yaml_event_type_t type, std::string_view what) {
    MOTLEY_TRY(const Event event, next());
    if (event.type() == type) return {};
    return wrong(event.line(), cat("not ", what), "mend the file");
  }

  // Up to the end of a map whose start has been read.
  Result<std::vector<YamlEntry>> read_entries() {
    std::vector<YamlEntry> entries;
    while (true) {
      MOTLEY_TRY(const Event key, next());
      if (key.type() == YAML_MAPPING_END_EVENT) return entries;
      if (key.type() != YAML_SCALAR_EVENT || key.scalar().empty())
        return wrong(key.line(), "a key that is no word", "write an option's name");
      MOTLEY_TRY(const Event start, next());
      MOTLEY_TRY(json::Value value, read_value(start, 1, false));
      entries.push_back(
          {.key = std::string(key.scalar()), .line = key.line(), .value = std::move(value)});
    }
  }

  Result<json::Value> read_value(const Event& start, int depth, bool in_map) {
    if (depth > max_depth) return wrong(start.line(), "too many levels", "write fewer");
    switch (start.type()) {
      case YAML_SCALAR_EVENT:
        if (in_map) return typed(start);
        return is_null(start) ? json::Value() : json::Value(start.scalar());
      case YAML_SEQUENCE_START_EVENT:
        return read_list(depth, in_map);
      case YAML_MAPPING_START_EVENT:
        return read_map(depth);
      default:
        return wrong(start.line(), "no value", "write one");
    }
  }

  Result<json::Value> read_list(int depth, bool in_map) {
    json::Array list;
    while (true) {
      MOTLEY_TRY(const Event start, next());
      if (start.type() == YAML_SEQUENCE_END_EVENT) return json::Value(std::move(list));
      MOTLEY_TRY(json::Value value, read_value(start, depth + 1, in_map));
      list.push_back(std::move(value));
    }
  }

  Result<json::Value> read_map(int depth) {
    json::Object object;
    while (true) {
      MOTLEY_TRY(const Event key, next());
      if (key.type() == YAML_MAPPING_END_EVENT) return json::Value(std::move(object));
      if (key.type() != YAML_SCALAR_EVENT)
        return wrong(key.line(), "a key that is no word", "write a word");
      if (object.contains(key.scalar()))
        return wrong(key.line(), cat("key ", quote(key.scalar()), " twice"), "keep one of them");
      MOTLEY_TRY(const Event start, next());
      MOTLEY_TRY(json::Value value, read_value(start, depth + 1, true));
      object.add(std::string(key.scalar()), std::move(value));
    }
  }

  std::string_view name_;
  yaml_parser_t parser_ = {};
  bool ready_ = false;
};

}  // namespace

Result<std::vector<YamlEntry>> parse_yaml(std::string_view text, std::string_view name) {
  return Reader(text, name).read();
}

}  // namespace motley::cli
