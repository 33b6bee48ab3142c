// Reads the input as an adapter's configuration, and its lines as names of tensors. What is
// accepted gives every module a rank and a finite scale; what is refused gets a message of one
// line.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/cat.h"
#include "base/check.h"
#include "lora/files/adapter.h"
#include "lora/files/config/config.h"
#include "lora/files/conventions/tensor_names.h"

namespace {

void check_message(const motley::Error& error) {
  const std::string message = error.message();
  MOTLEY_CHECK(!message.empty() && message == motley::printable(message), "one printable line");
}

void check_config(std::string_view text) {
  const auto config = motley::lora::parse_adapter_config(text, "adapter_config.json");
  if (!config.ok()) return check_message(config.error());
  for (const std::string_view module :
       {"", "lm_head", "model.layers.0.self_attn.q_proj", "model.layers.17.mlp.experts.3.w1",
        "model.layers.1.mlp.experts.gate_up_proj"}) {
    const std::int64_t rank = config->rank_of(module);
    MOTLEY_CHECK(rank >= 1 && rank <= motley::lora::max_rank, "a rank that motley has");
    MOTLEY_CHECK(std::isfinite(config->scale_of(module)), "a finite scale");
    const bool named = config->targets.names(module, {.layer = 1, .expert = 3});
    MOTLEY_CHECK(!named || config->targets.kind() != motley::lora::Targets::Kind::unknown,
                 "nothing is named by what can't be run");
  }
}

void check_names(std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view name = text.substr(0, end);
    const auto parsed = motley::lora::parse_tensor_name(name);
    if (!parsed.ok()) {
      check_message(parsed.error());
    } else {
      MOTLEY_CHECK(parsed->module.site.layer >= -1 && parsed->module.expert >= 0, "a real place");
      MOTLEY_CHECK(!parsed->path.empty(), "a module has a path");
    }
    static_cast<void>(motley::lora::replaced_module_path(name));
    static_cast<void>(motley::lora::ignored_kind(name));
    static_cast<void>(motley::lora::whole_tensor_name(name));
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_config(text);
  check_names(text);
  return 0;
}
