#include "text/unicode/property.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/ascii.h"
#include "text/unicode/tables.h"

namespace motley::text::unicode {
namespace {

std::string plain(std::string_view name) {
  std::string written;
  for (const char c : name) {
    if (c == ' ' || c == '-' || c == '_') continue;
    written += ascii::lower(c);
  }
  return written;
}

}  // namespace

std::optional<CodeSet> property(std::string_view name) {
  const std::string wanted = plain(name);
  const auto names = tables::property_names;
  const auto found = std::lower_bound(
      names.begin(), names.end(), wanted,
      [](const auto& entry, const std::string& searched) { return entry.name < searched; });
  if (found == names.end() || found->name != wanted) return std::nullopt;

  tables::TableReader table(tables::property_sets);
  for (std::uint32_t set = 0; set < found->set; ++set)
    for (std::uint32_t numbers = 2 * table.number(); numbers > 0; --numbers) table.number();
  std::vector<CodeRange> ranges(table.number());
  char32_t next = 0;
  for (CodeRange& range : ranges) {
    range.first = next + table.number();
    range.last = range.first + table.number();
    next = range.last + 1;
  }
  return CodeSet(std::move(ranges));
}

}  // namespace motley::text::unicode
