#pragma once

#include <span>
#include <string>
#include <string_view>

namespace motley::cli {

// What is supported, as tables in Markdown with a heading each: experts of each family in each
// format on each device, by the backends of this build; and kinds of adapters.
std::string supported_tables();

// Every type of adapter that PEFT 0.21 can write, except LORA.
std::span<const std::string_view> other_peft_types();

}  // namespace motley::cli
