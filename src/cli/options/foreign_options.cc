#include "cli/options/foreign_options.h"

#include <algorithm>
#include <array>

#include "base/cat.h"

namespace motley::cli {
namespace {

struct ForeignOption {
  std::string_view name;
  std::string_view server;  // whose it is
  std::string_view here;    // what it is in motley, after "is"
};

constexpr std::string_view vllm = "vLLM's";
constexpr std::string_view llama = "llama-server's";
constexpr std::string_view is_model = "the first word here: motley serve MODEL";

constexpr std::array foreign_options = {
    ForeignOption{"--lora-modules", vllm, "--adapter NAME=PATH here, once for each adapter"},
    ForeignOption{"--enable-lora", vllm, "not needed here: give --adapter NAME=PATH"},
    ForeignOption{"--max-loras", vllm, "--adapter-memory SIZE here"},
    ForeignOption{"--max-lora-rank", vllm, "not needed here: each adapter has its own rank"},
    ForeignOption{"--max-cpu-loras", vllm, "--adapter-host-memory SIZE here"},
    ForeignOption{"--tensor-parallel-size", vllm, "--tp N here"},
    ForeignOption{"-tp", vllm, "--tp N here"},
    ForeignOption{"--data-parallel-size", vllm, "--dp N here"},
    ForeignOption{"-dp", vllm, "--dp N here"},
    ForeignOption{"--enable-expert-parallel", vllm, "--ep E here, for E groups of ranks"},
    ForeignOption{"--max-model-len", vllm, "bounded by --kv-memory SIZE here"},
    ForeignOption{"--gpu-memory-utilization", vllm,
                  "--kv-memory SIZE and --adapter-memory SIZE here"},
    ForeignOption{"--max-num-batched-tokens", vllm, "--max-batch-tokens N here"},
    ForeignOption{"--served-model-name", vllm, "--name ID here"},
    ForeignOption{"--dtype", vllm, "--compute auto|f32|bf16 here"},
    ForeignOption{"--kv-cache-dtype", vllm, "--kv-dtype auto|fp8 here"},
    ForeignOption{"--enforce-eager", vllm, "--no-graphs here"},
    ForeignOption{"--quantization", vllm,
                  "not needed here: the model's files say how they are quantised"},
    ForeignOption{"--api-key", vllm,
                  "--api-key-file F here, because other users see command lines"},
    ForeignOption{"--allowed-origins", vllm, "--cors-origin ORIGIN here"},
    ForeignOption{"--tool-call-parser", vllm,
                  "--tool-form NAME here, where the template does not show it"},
    ForeignOption{"--reasoning-parser", vllm,
                  "--reasoning-form NAME here, where the template does not show it"},
    ForeignOption{"--model", vllm, is_model},
    ForeignOption{"-m", llama, is_model},
    ForeignOption{"--lora", llama, "--adapter NAME=PATH here"},
    ForeignOption{"--alias", llama, "--name ID here"},
    ForeignOption{"--ctx-size", llama, "bounded by --kv-memory SIZE here"},
    ForeignOption{"-c", llama, "bounded by --kv-memory SIZE here"},
    ForeignOption{"--n-gpu-layers", llama, "--device cuda here, for all layers"},
    ForeignOption{"-ngl", llama, "--device cuda here, for all layers"},
    ForeignOption{"-p", llama, "the last word of motley ask URL PROMPT here"},
};

}  // namespace

std::string foreign_option_advice(std::string_view option) {
  const auto found = std::ranges::find(foreign_options, option, &ForeignOption::name);
  if (found == foreign_options.end()) return {};
  return cat(found->server, " ", found->name, " is ", found->here);
}

}  // namespace motley::cli
