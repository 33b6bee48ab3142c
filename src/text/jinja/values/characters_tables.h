#pragma once

#include <string_view>

// The tables behind characters.h, to be read with text::unicode::tables::TableReader.
namespace motley::text::jinja::tables {

// Runs of characters from U+0000 on: length, properties.
extern const std::string_view properties;

// To be read with unicode::CaseMap. Title case has only what differs from upper case.
extern const std::string_view lower_case;
extern const std::string_view upper_case;
extern const std::string_view title_case;

}  // namespace motley::text::jinja::tables
