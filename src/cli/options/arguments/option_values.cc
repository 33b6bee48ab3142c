#include "cli/options/arguments/option_values.h"

#include <charconv>

#include "base/cat.h"

namespace motley::cli {

Error wrong_option(std::string what, std::string_view option, std::string fix) {
  return {ErrorCode::invalid_argument, std::move(what), std::string(option), std::move(fix)};
}

Result<std::int64_t> parse_number(std::string_view text, std::string_view option,
                                  std::int64_t least, std::int64_t most) {
  std::int64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || number < least ||
      number > most)
    return wrong_option(cat("not a number for this: ", quote(text)), option,
                        cat("use ", least, " to ", most));
  return number;
}

std::vector<std::string_view> split_list(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::size_t comma = text.find(','); comma != text.npos; comma = text.find(',')) {
    parts.push_back(text.substr(0, comma));
    text.remove_prefix(comma + 1);
  }
  parts.push_back(text);
  return parts;
}

Result<std::vector<std::int64_t>> parse_numbers(std::string_view text, std::string_view option,
                                                std::int64_t least, std::int64_t most) {
  std::vector<std::int64_t> numbers;
  if (text == "none") return numbers;
  for (const std::string_view part : split_list(text)) {
    MOTLEY_TRY(const std::int64_t number, parse_number(part, option, least, most));
    numbers.push_back(number);
  }
  return numbers;
}

}  // namespace motley::cli
