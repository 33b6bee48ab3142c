#pragma once

#include <span>
#include <string>
#include <string_view>

namespace motley::cli {

// What works, as tables in Markdown under a heading each: experts of each family in each format on
// each device, asked of the backends that this build has, and kinds of adapters.
std::string supported_tables();

// Every type of adapter that PEFT 0.21 can write beside LORA.
std::span<const std::string_view> other_peft_types();

}  // namespace motley::cli
