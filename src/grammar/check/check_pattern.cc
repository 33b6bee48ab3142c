#include <algorithm>
#include <charconv>
#include <vector>

#include "base/cat.h"
#include "grammar/check/check.h"

// Reads the groups and repeats of a pattern. Only its nesting is checked; the compiler reports
// other errors.
namespace motley::grammar {
namespace {

namespace limits = grammar_limits;

Error too_deep(std::string_view what, int most, std::string_view where) {
  return Error(ErrorCode::invalid_argument, cat(what, " are nested more than ", most, " deep"),
               std::string(where), "make it simpler");
}

// Repeats inside a group, or inside the last item of one.
struct Inside {
  int repeat_depth = 0;
  std::int64_t repeats = 1;
  std::int64_t classes = 0;  // repetitions of character classes

  void take(const Inside& other) {
    repeat_depth = std::max(repeat_depth, other.repeat_depth);
    repeats = std::max(repeats, other.repeats);
    classes = std::min(classes + other.classes, max_classes);
  }

  static constexpr std::int64_t max_classes = limits::class_characters * 1000;
};

class Nesting {
 public:
  explicit Nesting(std::string_view where) : where_(where) {}

  void item() { settle({}); }
  void character_class() { settle({.classes = 1}); }

  Result<void> open() {
    settle({});
    if (open_.size() > static_cast<std::size_t>(limits::group_depth))
      return too_deep("groups", limits::group_depth, where_);
    open_.emplace_back();
    return {};
  }

  void close() {
    if (open_.size() == 1) return;  // the compiler reports it
    open_.back().take(last_);
    last_ = open_.back();
    open_.pop_back();
  }

  // The last item or group repeats at most `times` times; negative: without limit.
  Result<void> repeat(std::int64_t times) {
    if (times == 0 || times == 1) return {};
    if (times > 0) {
      MOTLEY_TRY_VOID(check_repeats(times, where_));
      last_.repeats *= times;
      last_.classes = std::min(last_.classes * times, Inside::max_classes);
      if (last_.repeats > limits::nested_repeats) {
        return Error(ErrorCode::invalid_argument,
                     cat("counts within counts repeat something ", last_.repeats, " times"),
                     std::string(where_), cat("stay below ", limits::nested_repeats));
      }
    }
    if (++last_.repeat_depth > limits::repeat_depth)
      return too_deep("repeated groups", limits::repeat_depth, where_);
    return {};
  }

  // Call after the last item.
  Result<void> end() {
    while (open_.size() > 1) close();
    settle({});
    const std::int64_t classes = open_.front().classes;
    if (classes <= limits::class_characters) return {};
    return Error(
        ErrorCode::invalid_argument, cat(classes, " characters out of classes, counts multiplied"),
        std::string(where_),
        cat("stay below ", limits::class_characters, ", or leave their number open with * or +"));
  }

 private:
  void settle(const Inside& next) {
    open_.back().take(last_);
    last_ = next;
  }

  std::string_view where_;
  std::vector<Inside> open_ = std::vector<Inside>(1);
  Inside last_;
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// "{2}", "{2,}" or "{2,5}" at the front of text.
struct Count {
  std::size_t length = 0;  // 0: there is no count here
  std::int64_t most = 0;   // negative: unlimited
};

Count read_count(std::string_view text) {
  const std::size_t end = text.find('}');
  if (end == std::string_view::npos) return {};
  std::string_view inner = text.substr(1, end - 1);
  const auto is_space = [](char c) { return c == ' '; };
  while (!inner.empty() && is_space(inner.back())) inner.remove_suffix(1);
  const std::size_t comma = inner.find(',');
  if (comma != std::string_view::npos && comma + 1 == inner.size()) {
    // The lower bound is a count as well.
    inner = inner.substr(0, comma);
  } else if (comma != std::string_view::npos) {
    inner = inner.substr(comma + 1);
  }
  while (!inner.empty() && is_space(inner.front())) inner.remove_prefix(1);
  if (inner.empty() || !std::all_of(inner.begin(), inner.end(), is_digit)) return {};
  std::int64_t most = 0;
  const auto read = std::from_chars(inner.data(), inner.data() + inner.size(), most);
  if (read.ec != std::errc()) most = limits::repeats + 1;
  return {.length = end + 1, .most = most};
}

// The position after a class that begins at `at`, or the end of the text.
std::size_t after_class(std::string_view text, std::size_t at) {
  for (++at; at < text.size() && text[at] != ']'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return std::min(at + 1, text.size());
}

// Reads one item that both syntaxes share; returns its length in bytes.
Result<std::size_t> read_common(Nesting& nesting, std::string_view text, std::size_t at) {
  switch (text[at]) {
    case '(':
      MOTLEY_TRY_VOID(nesting.open());
      return std::size_t{1};
    case ')':
      nesting.close();
      return std::size_t{1};
    case '[':
      nesting.character_class();
      return after_class(text, at) - at;
    case '*':
    case '+':
      MOTLEY_TRY_VOID(nesting.repeat(-1));
      return std::size_t{1};
    case '?':
      return std::size_t{1};
    case '{': {
      const Count count = read_count(text.substr(at));
      if (count.length == 0) break;
      MOTLEY_TRY_VOID(nesting.repeat(count.most));
      return count.length;
    }
    default:
      break;
  }
  nesting.item();
  return std::size_t{1};
}

}  // namespace

Result<void> check_regex(std::string_view pattern, std::string_view where) {
  Nesting nesting(where);
  for (std::size_t at = 0; at < pattern.size();) {
    if (pattern[at] == '\\' || pattern[at] == '.') {
      const bool escape = pattern[at] == '\\';
      const char escaped = escape && at + 1 < pattern.size() ? pattern[at + 1] : '.';
      constexpr std::string_view classes = ".wWdDsSpP";
      if (escape && (escaped == '.' || classes.find(escaped) == std::string_view::npos))
        nesting.item();
      else
        nesting.character_class();
      at += escape ? 2 : 1;
      continue;
    }
    MOTLEY_TRY(const std::size_t read, read_common(nesting, pattern, at));
    at += read;
  }
  return nesting.end();
}

Result<void> check_ebnf(std::string_view text, std::string_view where) {
  Nesting nesting(where);
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '#') {
      at = std::min(text.find('\n', at), text.size());
    } else if (text[at] == '"') {
      nesting.item();
      for (++at; at < text.size() && text[at] != '"'; ++at) at += text[at] == '\\' ? 1 : 0;
      ++at;
    } else if (text[at] == ' ' || text[at] == '\t' || text[at] == '\n') {
      ++at;  // a repeat applies to what precedes it
    } else {
      MOTLEY_TRY(const std::size_t read, read_common(nesting, text, at));
      at += read;
    }
  }
  return nesting.end();
}

}  // namespace motley::grammar
