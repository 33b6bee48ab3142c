#pragma once

#include <array>

#include "cli/options/foreign/foreign_options.h"

// Values of other servers' options with a meaning of their own.
namespace motley::cli {

inline constexpr auto maps_to = ForeignUse::mapped;
inline constexpr auto no_effect = ForeignUse::ignored;
inline constexpr auto refuses = ForeignUse::refused;

// bf16 has fewer significant bits than float16, so answers would be further from the model's.
inline constexpr std::string_view no_float16 = "asks for float16, which motley does not compute in";
inline constexpr std::string_view so_already = "it is so already";

inline constexpr std::array dtype_values = {ForeignValue{"auto", maps_to, "--compute auto"},
                                            ForeignValue{"bfloat16", maps_to, "--compute bf16"},
                                            ForeignValue{"float32", maps_to, "--compute f32"},
                                            ForeignValue{"float", maps_to, "--compute f32"},
                                            ForeignValue{"float16", refuses, no_float16},
                                            ForeignValue{"half", refuses, no_float16}};

inline constexpr std::array kv_dtype_values = {ForeignValue{"auto", maps_to, "--kv-dtype auto"},
                                               ForeignValue{"bfloat16", maps_to, "--kv-dtype auto"},
                                               ForeignValue{"fp8", maps_to, "--kv-dtype fp8"},
                                               ForeignValue{"fp8_e4m3", maps_to, "--kv-dtype fp8"}};

// In vLLM these turn other weights into that format when they load.
inline constexpr std::string_view quantises = "quantises weights when they load";
inline constexpr std::array quantization_values = {
    ForeignValue{"fp8", refuses, quantises}, ForeignValue{"bitsandbytes", refuses, quantises},
    ForeignValue{"experts_int8", refuses, quantises}, ForeignValue{"torchao", refuses, quantises},
    ForeignValue{"gguf", refuses, "asks for GGUF"}};

inline constexpr std::array tokenizer_values = {ForeignValue{model_itself, no_effect, so_already}};
inline constexpr std::array tokenizer_mode_values = {
    ForeignValue{"auto", no_effect, so_already}, ForeignValue{"hf", no_effect, so_already},
    ForeignValue{"fast", no_effect, so_already}, ForeignValue{"slow", no_effect, so_already}};
inline constexpr std::array load_format_values = {
    ForeignValue{"auto", no_effect, so_already}, ForeignValue{"hf", no_effect, so_already},
    ForeignValue{"safetensors", no_effect, so_already},
    ForeignValue{"fastsafetensors", no_effect, "weights are mapped from safetensors files"},
    ForeignValue{"runai_streamer", no_effect, "weights are mapped from safetensors files"}};
inline constexpr std::array config_format_values = {ForeignValue{"auto", no_effect, so_already},
                                                    ForeignValue{"hf", no_effect, so_already}};
inline constexpr std::array no_json_values = {ForeignValue{"{}", no_effect, so_already},
                                              ForeignValue{"null", no_effect, so_already}};
inline constexpr std::array generation_config_values = {
    ForeignValue{"auto", no_effect, so_already}, ForeignValue{model_itself, no_effect, so_already}};
inline constexpr std::array task_values = {ForeignValue{"auto", no_effect, so_already},
                                           ForeignValue{"generate", no_effect, so_already},
                                           ForeignValue{"none", no_effect, so_already}};
inline constexpr std::array lora_dtype_values = {ForeignValue{"auto", no_effect, so_already},
                                                 ForeignValue{"bfloat16", no_effect, so_already}};
inline constexpr std::array prefix_caching_values = {
    ForeignValue{"false", refuses, "turns off the prefix cache, which is always there"}};
inline constexpr std::array expert_parallel_values = {ForeignValue{"true", maps_to, "--ep tp"}};
inline constexpr std::array one_values = {ForeignValue{"1", no_effect, so_already}};
inline constexpr std::array zero_values = {ForeignValue{"0", no_effect, so_already}};
inline constexpr std::array content_format_values = {ForeignValue{"auto", no_effect, so_already},
                                                     ForeignValue{"string", no_effect, so_already}};
inline constexpr std::array role_values = {ForeignValue{"assistant", no_effect, so_already}};

// vLLM's parsers by the form of ours that reads the same text. A parser that reads several of our
// forms ("mistral") is left to the template.
inline constexpr std::array tool_parser_values = {
    ForeignValue{"hermes", maps_to, "--tool-form hermes"},
    ForeignValue{"granite4", maps_to, "--tool-form hermes"},
    ForeignValue{"ernie45", maps_to, "--tool-form hermes"},
    ForeignValue{"qwen3_coder", maps_to, "--tool-form qwen3_coder"},
    ForeignValue{"qwen3_xml", maps_to, "--tool-form qwen3_coder"},
    ForeignValue{"glm45", maps_to, "--tool-form glm4"},
    ForeignValue{"glm47", maps_to, "--tool-form glm4"},
    ForeignValue{"openai", maps_to, "--tool-form gpt_oss"},
    ForeignValue{"deepseek_v3", maps_to, "--tool-form deepseek_v3"},
    ForeignValue{"deepseek_v31", maps_to, "--tool-form deepseek_v31"},
    ForeignValue{"deepseek_v32", maps_to, "--tool-form deepseek_v32"},
    ForeignValue{"deepseek_v4", maps_to, "--tool-form deepseek_v4"},
    ForeignValue{"kimi_k2", maps_to, "--tool-form kimi_k2"},
    ForeignValue{"llama3_json", maps_to, "--tool-form llama3_json"},
    ForeignValue{"llama4_json", maps_to, "--tool-form llama3_json"},
    ForeignValue{"llama4_pythonic", maps_to, "--tool-form llama4_pythonic"},
    ForeignValue{"pythonic", maps_to, "--tool-form llama4_pythonic"},
    ForeignValue{"minimax", maps_to, "--tool-form hunyuan"},
    ForeignValue{"minimax_m2", maps_to, "--tool-form minimax_m2"},
    ForeignValue{"hunyuan_a13b", maps_to, "--tool-form hunyuan"},
    ForeignValue{"seed_oss", maps_to, "--tool-form seed_oss"},
    ForeignValue{"olmo3", maps_to, "--tool-form olmo3"},
    ForeignValue{"gemma4", maps_to, "--tool-form gemma4"},
    ForeignValue{"granite", maps_to, "--tool-form granite3"},
    ForeignValue{"phi4_mini_json", maps_to, "--tool-form phi4_mini"}};

inline constexpr std::array reasoning_parser_values = {
    ForeignValue{"qwen3", maps_to, "--reasoning-form think"},
    ForeignValue{"deepseek_r1", maps_to, "--reasoning-form think"},
    ForeignValue{"deepseek_v3", maps_to, "--reasoning-form think"},
    ForeignValue{"deepseek_v4", maps_to, "--reasoning-form think"},
    ForeignValue{"glm45", maps_to, "--reasoning-form think"},
    ForeignValue{"kimi_k2", maps_to, "--reasoning-form think"},
    ForeignValue{"minimax_m2", maps_to, "--reasoning-form think"},
    ForeignValue{"olmo3", maps_to, "--reasoning-form think"},
    ForeignValue{"step3", maps_to, "--reasoning-form think"},
    ForeignValue{"nemotron_v3", maps_to, "--reasoning-form think"},
    ForeignValue{"hunyuan_a13b", maps_to, "--reasoning-form hunyuan"},
    ForeignValue{"ernie45", maps_to, "--reasoning-form ernie45"},
    ForeignValue{"mistral", maps_to, "--reasoning-form mistral"},
    ForeignValue{"seed_oss", maps_to, "--reasoning-form seed_oss"},
    ForeignValue{"gemma4", maps_to, "--reasoning-form gemma4"}};

}  // namespace motley::cli
