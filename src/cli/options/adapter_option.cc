#include "cli/options/adapter_option.h"

#include <algorithm>

#include "base/cat.h"

namespace motley::cli {
namespace {

constexpr std::size_t longest_name = 200;

Error wrong(std::string what, std::string fix) {
  return {ErrorCode::invalid_argument, std::move(what), "--adapter", std::move(fix)};
}

// Parses an option after the path; false if the text is no option.
Result<bool> take_option(std::string_view text, AdapterOption& option) {
  constexpr std::string_view columns = "b-columns=";
  constexpr std::string_view orientation = "orientation=";
  if (text == "pinned") {
    option.pinned = true;
  } else if (text == "partial") {
    option.load.partial = true;
  } else if (text.starts_with(columns)) {
    MOTLEY_TRY(option.load.b_columns, lora::parse_b_columns(text.substr(columns.size())));
  } else if (text.starts_with(orientation)) {
    MOTLEY_TRY(option.load.orientation, lora::parse_orientation(text.substr(orientation.size())));
  } else {
    return false;
  }
  return true;
}

}  // namespace

bool is_adapter_name(std::string_view name) {
  return !name.empty() && name.size() <= longest_name && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '/' || c == '-';
  });
}

Result<AdapterOption> parse_adapter_option(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos)
    return wrong(cat("not an adapter: ", quote(text)), "write NAME=PATH");
  AdapterOption option{.name = std::string(text.substr(0, equals))};
  if (!is_adapter_name(option.name))
    return wrong(cat("not an adapter's name: ", quote(option.name)),
                 "use 1 to 200 letters, digits, '.', '_', '/' or '-'");
  // Options follow the path, which may contain commas.
  std::string_view path = text.substr(equals + 1);
  for (std::size_t comma = path.rfind(','); comma != std::string_view::npos;
       comma = path.rfind(',')) {
    MOTLEY_TRY(const bool taken, take_option(path.substr(comma + 1), option));
    if (!taken) break;
    path = path.substr(0, comma);
  }
  if (path.empty())
    return wrong(cat("adapter ", quote(option.name), " has no path"), "write NAME=PATH");
  option.path = path;
  return option;
}

}  // namespace motley::cli
