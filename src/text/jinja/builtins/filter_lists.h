#pragma once

#include <span>

#include "text/jinja/builtins/filters.h"

// The filters by subject; find_filter() looks through all of them.
namespace motley::text::jinja {

std::span<const Filter> text_filters();
std::span<const Filter> number_filters();
std::span<const Filter> sequence_filters();

}  // namespace motley::text::jinja
