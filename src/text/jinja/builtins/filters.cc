#include "text/jinja/builtins/filters.h"

#include <algorithm>
#include <array>

#include "text/jinja/builtins/filter_lists.h"

namespace motley::text::jinja {
namespace {

// Filters that are useless in prompts (HTML, terminals), and one whose result is random.
constexpr std::array<std::string_view, 6> refused = {"pprint", "random",   "striptags",
                                                     "urlize", "wordwrap", "xmlattr"};

const Filter* find(std::span<const Filter> filters, std::string_view name) {
  const auto found = std::ranges::find(filters, name, &Filter::name);
  return found == filters.end() ? nullptr : &*found;
}

}  // namespace

const Filter* find_filter(std::string_view name) {
  if (const Filter* const found = find(text_filters(), name)) return found;
  if (const Filter* const found = find(number_filters(), name)) return found;
  return find(sequence_filters(), name);
}

bool is_refused_filter(std::string_view name) {
  return std::ranges::find(refused, name) != refused.end();
}

}  // namespace motley::text::jinja
