#pragma once

#include <string>
#include <string_view>

namespace motley::cli {

// What an option of vLLM or llama-server is here, as advice: "vLLM's --lora-modules is --adapter
// NAME=PATH here, once for each adapter". Empty for other words.
std::string foreign_option_advice(std::string_view option);

}  // namespace motley::cli
