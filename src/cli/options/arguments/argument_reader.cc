#include "cli/options/arguments/argument_reader.h"

#include <algorithm>
#include <utility>

#include "base/ascii.h"
#include "base/cat.h"
#include "base/spelling.h"

namespace motley::cli {
namespace {

constexpr std::string_view config_option = "--config";

// "--max_num_seqs" is "--max-num-seqs"; what follows a dot is the key of a JSON value.
std::string normalised(std::string_view name) {
  std::string result(name);
  if (!name.starts_with("--")) return result;
  const auto end =
      result.begin() + static_cast<std::ptrdiff_t>(std::min(name.find('.'), name.size()));
  std::replace(result.begin(), end, '_', '-');
  return result;
}

bool is_option(std::string_view word) { return word.starts_with("-") && word != "-"; }

// "true" or "false" in any case.
std::optional<bool> read_boolean(std::string_view text) {
  const std::string word = ascii::lower(text);
  if (word == "true") return true;
  if (word == "false") return false;
  return std::nullopt;
}

// In a file, YAML 1.1's words too.
std::optional<bool> read_file_boolean(const FileValue& value) {
  const std::string word = ascii::lower(value.text);
  if (word == "yes" || word == "on") return true;
  if (word == "no" || word == "off") return false;
  return read_boolean(word);
}

// Whether a word may be one of the option's several values.
bool is_value_of(const ForeignOption& option, std::string_view word) {
  if (is_option(word)) return false;
  if (option.name != lora_modules_option) return true;
  return word.starts_with('{') || word.starts_with('[') || word.find('=') != word.npos;
}

}  // namespace

const OptionSpec* ArgumentReader::find(std::string_view name) const {
  const auto at = std::ranges::find(command_.options, name, &OptionSpec::name);
  return at == command_.options.end() ? nullptr : &*at;
}

std::optional<ForeignName> ArgumentReader::find_others(std::string_view name) const {
  if (command_.others == OthersOptions::advised) return std::nullopt;
  const auto found = find_foreign(name);
  if (!found || command_.others == OthersOptions::all) return found;
  const ForeignOption& option = *found->option;
  if (option.use != ForeignUse::mapped) return std::nullopt;
  const bool is_model = option.here == model_itself && max_positionals() > 0;
  return is_model || find(option.here) != nullptr ? found : std::nullopt;
}

std::size_t ArgumentReader::max_positionals() const {
  return command_.positionals.size() + (command_.optional_positional.empty() ? 0 : 1);
}

Error ArgumentReader::wrong_call(std::string what, std::string fix) const {
  return {ErrorCode::invalid_argument, std::move(what), cat("motley ", command_.name),
          std::move(fix)};
}

Error ArgumentReader::unknown_option(std::string_view name, std::string where) const {
  std::string fix = foreign_option_advice(name);
  if (fix.empty()) {
    std::vector<std::string_view> names;
    names.reserve(command_.options.size());
    for (const OptionSpec& option : command_.options) names.push_back(option.name);
    const auto meant = closest(name, names);
    fix = meant ? cat("did you mean ", *meant, "?") : cat("see motley ", command_.name, " --help");
  }
  return {ErrorCode::invalid_argument, cat("unknown option ", quote(name)), std::move(where),
          std::move(fix)};
}

Result<void> ArgumentReader::read_words(std::span<const std::string> all) {
  Words words{.words = all};
  bool only_positionals = false;
  while (!words.empty()) {
    const std::string& word = words.peek();
    if (word == "--" && !only_positionals) {
      only_positionals = true;
      words.take();
    } else if (only_positionals || !is_option(word)) {
      list_before_end_.clear();
      MOTLEY_TRY_VOID(add_positional(line_, words.take(), cat("motley ", command_.name)));
    } else {
      list_before_end_.clear();
      MOTLEY_TRY_VOID(read_option(words));
    }
  }
  return {};
}

Result<void> ArgumentReader::read_option(Words& words) {
  const std::string& word = words.take();
  const std::size_t equals = word.find('=');
  std::string name = normalised(std::string_view(word).substr(0, equals));
  std::optional<std::string> value;
  if (equals != std::string::npos) value = word.substr(equals + 1);
  if (const OptionSpec* const own = find(name); own != nullptr)
    return read_own(*own, std::move(value), words);
  // vLLM's -O3 is -O 3.
  constexpr std::string_view level = "-O";
  if (!value && name.starts_with(level) && name.size() > level.size()) {
    value = name.substr(level.size());
    name = level;
  }
  const auto others = find_others(name);
  std::string where = cat("motley ", command_.name);
  if (!others) return unknown_option(name, std::move(where));
  return read_others({.name = *others, .written = std::move(name), .where = std::move(where)},
                     std::move(value), words);
}

Result<void> ArgumentReader::read_own(const OptionSpec& option, std::optional<std::string> value,
                                      Words& words) {
  if (option.value.empty()) {
    if (value)
      return wrong_call(cat(option.name, " takes no value"), cat("write ", option.name, " alone"));
    value.emplace();
  } else if (!value) {
    if (words.empty())
      return wrong_call(cat(option.name, " needs a value"),
                        cat("write ", option.name, " ", option.value));
    value = words.take();
  }
  return add(line_, option, *std::move(value), cat("motley ", command_.name));
}

Result<void> ArgumentReader::read_others(GivenForeign given, std::optional<std::string> value,
                                         Words& words) {
  const ForeignOption& option = *given.name.option;
  if (option.arity == ForeignArity::none) {
    // As Python's parsers read it: --enable-prefix-caching true.
    if (!value && !given.name.negated && !words.empty() && read_boolean(words.peek()))
      value = words.take();
    const auto on = read_boolean(value.value_or("true"));
    if (!on || (value && given.name.negated))
      return wrong_call(cat(given.written, " takes no value"),
                        cat("write ", given.written, " alone"));
    given.values.emplace_back(*on != given.name.negated ? "true" : "false");
  } else if (value) {
    given.values.push_back(*std::move(value));
  } else if (option.arity == ForeignArity::several) {
    while (!words.empty() && is_value_of(option, words.peek()))
      given.values.push_back(words.take());
    if (words.empty()) list_before_end_ = given.written;
  } else if (!words.empty() && (option.arity == ForeignArity::one || !is_option(words.peek()))) {
    given.values.push_back(words.take());
  }
  if (given.values.empty() && option.arity != ForeignArity::optional)
    return wrong_call(cat(given.written, " needs a value"), cat("write it after ", given.written));
  if (option.here == model_itself)
    return add_positional(line_, std::move(given.values.front()), given.where);
  line_.foreign.push_back(std::move(given));
  return {};
}

const std::string* ArgumentReader::config_file() const {
  const auto at = line_.options.find(config_option);
  return at == line_.options.end() ? nullptr : &at->second.front();
}

Result<void> ArgumentReader::read_file(std::span<const FileOption> options) {
  for (const FileOption& entry : options) MOTLEY_TRY_VOID(read_entry(entry));
  return {};
}

// A key is an option's name without its dashes.
Result<void> ArgumentReader::read_entry(const FileOption& entry) {
  const std::string name = normalised(cat("--", entry.key));
  const auto wrong = [&](std::string what, std::string fix) {
    return Error(ErrorCode::invalid_argument, std::move(what), entry.where, std::move(fix));
  };
  if (name == config_option) return wrong("a file names another", "write all options into one");
  const OptionSpec* const own = find(name);
  const auto others = own == nullptr ? find_others(name) : std::nullopt;
  if (own == nullptr && !others) return unknown_option(name, entry.where);
  if (entry.values.empty()) return {};  // null, or an empty list

  const bool is_switch =
      own != nullptr ? own->value.empty() : others->option->arity == ForeignArity::none;
  if (is_switch) {
    const auto on =
        entry.values.size() == 1 ? read_file_boolean(entry.values.front()) : std::nullopt;
    if (!on) return wrong(cat(name, " is a switch"), "write true or false");
    if (own != nullptr) return *on ? add(file_, *own, {}, entry.where) : Result<void>();
    const bool given = *on != others->negated;
    file_.foreign.push_back({.name = *others,
                             .written = name,
                             .values = {given ? "true" : "false"},
                             .where = entry.where});
    return {};
  }
  if (own != nullptr) {
    for (const FileValue& value : entry.values)
      MOTLEY_TRY_VOID(add(file_, *own, value.text, entry.where));
    return {};
  }
  if (others->option->arity != ForeignArity::several && entry.values.size() > 1)
    return wrong(cat(name, " has several values"), "write one");
  GivenForeign given{.name = *others, .written = name, .where = entry.where};
  for (const FileValue& value : entry.values) given.values.push_back(value.text);
  if (others->option->here == model_itself)
    return add_positional(file_, std::move(given.values.front()), entry.where);
  file_.foreign.push_back(std::move(given));
  return {};
}

Result<void> ArgumentReader::add_positional(Source& source, std::string value,
                                            const std::string& where) {
  if (source.positionals.size() == max_positionals())
    return Error(ErrorCode::invalid_argument, cat("one argument too many, ", quote(value)), where,
                 cat("see motley ", command_.name, " --help"));
  source.positionals.push_back(std::move(value));
  return {};
}

Result<void> ArgumentReader::add(Source& source, const OptionSpec& option, std::string value,
                                 const std::string& where) {
  std::vector<std::string>& given = source.options[std::string(option.name)];
  if (!given.empty() && !option.repeated)
    return Error(ErrorCode::invalid_argument, cat(option.name, " is given twice"), where,
                 "keep one of them");
  given.push_back(std::move(value));
  return {};
}

// Turns other servers' options into ours.
Result<void> ArgumentReader::translate(Source& source, std::string_view model) {
  for (const GivenForeign& given : source.foreign) {
    MOTLEY_TRY(ForeignMeaning meaning, meaning_of(given, model));
    if (meaning.use == ForeignUse::ignored) {
      if (std::ranges::find(ignored_, given.written, &IgnoredOption::written) == ignored_.end())
        ignored_.push_back({.written = given.written, .reason = meaning.reason});
      continue;
    }
    if (meaning.option.empty()) continue;
    // read_adapter_options() reads them beside --adapter, whose form differs.
    if (given.name.option->name == lora_modules_option) {
      std::vector<std::string>& items = source.options[std::string(lora_modules_option)];
      items.insert(items.end(), meaning.values.begin(), meaning.values.end());
      continue;
    }
    const OptionSpec* const own = find(meaning.option);
    if (own == nullptr) return unknown_option(given.written, given.where);
    const bool given_twice = !own->repeated && source.options.contains(own->name);
    if (given_twice)
      return Error(ErrorCode::invalid_argument,
                   cat(own->name, " is given twice, also as ", given.written), given.where,
                   "keep one of them");
    std::vector<std::string>& values = source.options[std::string(own->name)];
    if (meaning.values.empty()) meaning.values.emplace_back();
    values.insert(values.end(), meaning.values.begin(), meaning.values.end());
  }
  return {};
}

Result<Arguments> ArgumentReader::finish() {
  Arguments arguments;
  arguments.command_ = command_.name;
  arguments.positionals_ = std::move(line_.positionals.empty() ? file_ : line_).positionals;
  if (arguments.positionals_.size() < command_.positionals.size()) {
    const std::string_view missing = command_.positionals[arguments.positionals_.size()];
    return wrong_call(cat("no ", missing),
                      list_before_end_.empty()
                          ? cat("see motley ", command_.name, " --help")
                          : cat("write it before ", list_before_end_, ", which takes all words"));
  }
  arguments.positionals_.resize(max_positionals());
  const std::string_view model =
      arguments.positionals_.empty() ? std::string_view() : arguments.positionals_.front();
  MOTLEY_TRY_VOID(translate(file_, model));
  MOTLEY_TRY_VOID(translate(line_, model));
  arguments.options_ = std::move(line_.options);
  arguments.options_.merge(file_.options);
  arguments.ignored_ = std::move(ignored_);
  return arguments;
}

}  // namespace motley::cli
