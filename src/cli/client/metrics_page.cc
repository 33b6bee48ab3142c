#include "cli/client/metrics_page.h"

#include <charconv>
#include <string>
#include <system_error>

#include "base/cat.h"

namespace motley::cli {
namespace {

std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<double> metric(std::string_view page, std::string_view name) {
  const std::string begin = cat("\n", name, " ");
  const std::size_t at = page.find(begin);
  if (at != std::string_view::npos) return number(page.substr(at + begin.size()));
  const std::string replica = cat("\n", name, "{replica=");
  std::optional<double> sum;
  for (std::size_t one = page.find(replica); one != page.npos; one = page.find(replica, one + 1)) {
    const std::size_t value = page.find("} ", one);
    if (value == page.npos) return std::nullopt;
    const auto more = number(page.substr(value + 2));
    if (!more) return std::nullopt;
    sum = sum.value_or(0) + *more;
  }
  return sum;
}

std::string_view metric_label(std::string_view page, std::string_view name,
                              std::string_view label) {
  const std::string begin = cat("\n", name, "{");
  const std::size_t at = page.find(begin);
  if (at == std::string_view::npos) return {};
  std::string_view sample = page.substr(at + begin.size());
  sample = sample.substr(0, sample.find('}'));
  const std::string key = cat(label, "=\"");
  const std::size_t found = sample.find(key);
  if (found == std::string_view::npos) return {};
  sample.remove_prefix(found + key.size());
  return sample.substr(0, sample.find('"'));
}

}  // namespace motley::cli
