// What options of vLLM are here. Rows that say the same stand together: the guide shows them as
// one.

#include <array>

#include "cli/options/foreign/foreign_options.h"
#include "cli/options/foreign/foreign_values.h"

namespace motley::cli {
namespace {

using Arity = ForeignArity;
using Use = ForeignUse;
using Values = std::span<const ForeignValue>;

constexpr ForeignOption mapped(std::string_view name, std::string_view here, Values values = {}) {
  return {.name = name, .use = Use::mapped, .here = here, .values = values};
}
constexpr ForeignOption mapped_switch(std::string_view name, std::string_view here) {
  return {.name = name, .arity = Arity::none, .use = Use::mapped, .here = here};
}
constexpr ForeignOption ignored(std::string_view name, std::string_view why, Values values = {},
                                std::string_view fix = {}) {
  return {.name = name, .here = why, .fix = fix, .values = values};
}
constexpr ForeignOption ignored_switch(std::string_view name, std::string_view why) {
  return {.name = name, .arity = Arity::none, .here = why};
}
constexpr ForeignOption ignored_list(std::string_view name, std::string_view why) {
  return {.name = name, .arity = Arity::several, .here = why};
}
constexpr ForeignOption refused(std::string_view name, std::string_view why, std::string_view fix,
                                Values values = {}) {
  return {.name = name, .use = Use::refused, .here = why, .fix = fix, .values = values};
}
constexpr ForeignOption refused_switch(std::string_view name, std::string_view why,
                                       std::string_view fix) {
  return {.name = name, .arity = Arity::none, .use = Use::refused, .here = why, .fix = fix};
}
constexpr ForeignOption refused_list(std::string_view name, std::string_view why,
                                     std::string_view fix) {
  return {.name = name, .arity = Arity::several, .use = Use::refused, .here = why, .fix = fix};
}
constexpr ForeignOption shortly(std::string_view short_name, ForeignOption option) {
  option.short_name = short_name;
  return option;
}

// Reasons that several options share.
constexpr std::string_view memory_of_adapters = "--adapter-memory sizes what adapters take";
constexpr std::string_view memory_of_kv = "--kv-memory sizes keys and values";
constexpr std::string_view own_layout = "each adapter is read as its own files have it";
constexpr std::string_view text_only = "there are no images, sounds or videos";
constexpr std::string_view own_kernels = "kernels are chosen for the model and the device";
constexpr std::string_view own_steps = "steps mix prompts and answers by rules of their own";
constexpr std::string_view own_loading = "weights are mapped from safetensors files";
constexpr std::string_view own_log = "--log-level and --log-format control the log";
constexpr std::string_view one_process = "one process serves, with threads";
constexpr std::string_view no_code = "no code from model folders is run";
constexpr std::string_view no_kv_exchange =
    "keys and values stay in this server, answers are the same";
constexpr std::string_view base_stays = "the weights of the base do not change, adapters do";
constexpr std::string_view later_speculation = "there is no speculation yet, answers are the same";
constexpr std::string_view own_experts = "--ep says how experts are shared out";
constexpr std::string_view grammars = "XGrammar checks grammars and schemas";
constexpr std::string_view own_metrics = "/metrics has what there is";
constexpr std::string_view always_there = "it is always so";
constexpr std::string_view one_host = "needs several hosts, and motley runs on one";
constexpr std::string_view leave_out = "leave it out";
constexpr std::string_view python = "names Python code, which is not run";
constexpr std::string_view other_model = "changes what the model computes";
constexpr std::string_view mend_config = "change config.json in a copy of the model's folder";
constexpr std::string_view no_tls = "needs TLS, which is not there yet";
constexpr std::string_view use_proxy = "let a proxy in front of motley speak TLS";
constexpr std::string_view no_pooling = "asks for embeddings, and motley generates text";

constexpr auto table = std::to_array<ForeignOption>({
    // The model.
    mapped("--model", model_itself),
    ForeignOption{.name = "--served-model-name",
                  .arity = Arity::several,
                  .use = Use::mapped,
                  .here = "--name"},
    ForeignOption{.name = "--dtype",
                  .use = Use::mapped,
                  .here = "--compute",
                  .fix = "use bfloat16, or float32, which is exact",
                  .values = dtype_values},
    mapped("--kv-cache-dtype", "--kv-dtype", kv_dtype_values),
    shortly("-q", ignored("--quantization", "the model's files say how they are quantised",
                          quantization_values, "leave it out: the model's files say it")),
    refused("--tokenizer", "names another tokenizer than the model's",
            "put its files into the model's folder", tokenizer_values),
    refused("--tokenizer-mode", "asks for a tokenizer in Python",
            "leave it out, and name a template with --chat-template if the model has none",
            tokenizer_mode_values),
    refused("--revision", "chooses a revision", "write MODEL@REV"),
    refused("--tokenizer-revision", "chooses a revision", "write MODEL@REV"),
    ignored("--code-revision", no_code),
    ignored_switch("--trust-remote-code", no_code),
    ignored("--model-impl", "there is one implementation of each model"),
    refused("--load-format", "asks for other weights than safetensors files",
            "name a folder with safetensors files", load_format_values),
    refused("--config-format", "asks for another configuration than config.json",
            "name a folder in Hugging Face's form", config_format_values),
    refused("--hf-config-path", other_model, mend_config, tokenizer_values),
    refused("--hf-overrides", other_model, mend_config, no_json_values),
    refused("--rope-scaling", other_model, mend_config),
    refused("--rope-theta", other_model, mend_config),
    refused_switch("--disable-sliding-window", other_model, "give --max-model-len"),
    refused("--generation-config", "changes the sampling that requests have by default",
            "change generation_config.json in a copy of the model's folder",
            generation_config_values),
    refused("--override-generation-config", "changes the sampling that requests have by default",
            "change generation_config.json in a copy of the model's folder", no_json_values),
    refused("--task", no_pooling, leave_out, task_values),
    refused("--runner", no_pooling, leave_out, task_values),
    refused("--convert", no_pooling, leave_out, task_values),
    refused("--pooler-config", no_pooling, leave_out),
    refused("--override-pooler-config", no_pooling, leave_out),
    refused_switch("--skip-tokenizer-init", "serves without a tokenizer", leave_out),
    ignored_switch("--enable-prompt-embeds", "requests with embeddings are refused"),
    ignored("--download-dir", own_loading),
    ignored("--safetensors-load-strategy", own_loading),
    ignored("--model-loader-extra-config", own_loading),
    ignored_list("--ignore-patterns", own_loading),
    ignored_switch("--use-tqdm-on-load", own_loading),
    ignored("--pt-load-map-location", own_loading),
    ignored("--max-parallel-loading-workers", own_loading),
    ForeignOption{.name = "--hf-token", .arity = Arity::optional, .here = "nothing is downloaded"},
    ignored("--seed", "a request may have a seed; without one answers differ from start to start"),

    // Adapters.
    ForeignOption{.name = lora_modules_option,
                  .arity = Arity::several,
                  .use = Use::mapped,
                  .here = "--adapter"},
    ignored_switch("--enable-lora", "adapters need no switch"),
    ignored_switch("--enable-lora-bias", own_layout),
    ignored_switch("--enable-mixed-moe-lora-format", own_layout),
    ignored_switch("--enable-moe-shared-loras", own_layout),
    ignored("--max-lora-rank", "each adapter has its own rank"),
    ignored("--max-loras", memory_of_adapters),
    ignored("--lora-extra-vocab-size", "adapters that add tokens are refused by name"),
    ignored("--max-cpu-loras", "--adapter-host-memory sizes what adapters take on the host"),
    refused("--lora-dtype", "asks for factors in float16",
            "leave it out: adapters have bf16, float32 with --compute f32, or --adapter-dtype fp8",
            lora_dtype_values),
    ignored_switch("--fully-sharded-loras", "ranks share adapters out as they share the model"),
    ignored_switch("--specialize-active-lora", own_kernels),
    refused_list("--lora-target-modules", "leaves modules of adapters out",
                 "leave it out, or train adapters without them"),
    refused("--long-lora-scaling-factors", other_model, leave_out),
    refused("--qlora-adapter-name-or-path", other_model, "give --adapter NAME=PATH"),
    refused_switch("--enable-prompt-adapter", "asks for prompt tuning", leave_out),
    ignored("--default-mm-loras", text_only),
    ignored_switch("--enable-tower-connector-lora", text_only),

    // Memory and steps.
    mapped("--kv-cache-memory-bytes", "--kv-memory"),
    mapped("--max-num-batched-tokens", "--max-batch-tokens"),
    ignored("--gpu-memory-utilization",
            "--kv-memory and --adapter-memory set sizes, and weights take what they need"),
    ignored("--max-num-seqs",
            "a step has at most 256 sequences, and the tokens of --max-batch-tokens"),
    ignored("--swap-space", memory_of_kv),
    ignored("--num-gpu-blocks-override", memory_of_kv),
    ignored("--kv-offloading-size", memory_of_kv),
    ignored("--kv-offloading-backend", memory_of_kv),
    ignored("--block-size", "a page of keys and values has 16 tokens"),
    ignored("--cpu-offload-gb", "all weights lie in the device's memory"),
    ForeignOption{
        .name = "--enable-prefix-caching",
        .arity = Arity::none,
        .here = always_there,
        .fix = "leave it out; --private-prefixes keeps clients apart, cache_salt requests",
        .values = prefix_caching_values},
    ignored("--prefix-caching-hash-algo", "the prefix cache has hashes of its own"),
    ignored("--prefix-match-unit", "the prefix cache has hashes of its own"),
    ignored_switch("--enable-chunked-prefill", own_steps),
    ignored("--max-num-partial-prefills", own_steps),
    ignored("--max-long-partial-prefills", own_steps),
    ignored("--long-prefill-token-threshold", own_steps),
    ignored("--num-lookahead-slots", own_steps),
    ignored("--scheduling-policy", own_steps),
    ignored("--scheduler-cls", own_steps),
    ignored("--scheduler-delay-factor", own_steps),
    ignored_switch("--async-scheduling", own_steps),
    ignored("--preemption-mode", own_steps),
    ignored("--stream-interval", own_steps),
    ignored("--performance-mode", own_steps),
    ignored("--num-scheduler-steps", own_steps),
    ignored_switch("--multi-step-stream-outputs", own_steps),
    ignored("--max-num-scheduled-tokens", own_steps),
    ignored_switch("--scheduler-reserve-full-isl", own_steps),
    ignored_switch("--disable-async-output-proc", own_steps),
    ignored_switch("--use-v2-block-manager", own_steps),
    ignored_switch("--calculate-kv-scales",
                   "FP8 keys and values have the checkpoint's scales, or a token's own"),
    ignored_switch("--kv-sharing-fast-prefill", own_kernels),
    mapped_switch("--enforce-eager", "--no-graphs"),
    shortly("-O", ignored("--optimization-level", own_kernels)),
    shortly("-cc", ignored("--compilation-config", own_kernels)),
    ignored_list("--cudagraph-capture-sizes", own_kernels),
    ignored_list("--cuda-graph-sizes", own_kernels),
    ignored("--max-cudagraph-capture-size", own_kernels),
    ignored("--max-seq-len-to-capture", own_kernels),
    shortly("-ac", ignored("--attention-config", own_kernels)),
    ignored("--attention-backend", own_kernels),
    ignored("--moe-backend", own_kernels),
    ignored("--linear-backend", own_kernels),
    ignored("--kernel-config", own_kernels),
    ignored("--additional-config", own_kernels),
    ignored("--gdn-prefill-backend", own_kernels),
    ignored("--kda-prefill-backend", own_kernels),
    ignored_switch("--enable-flashinfer-autotune", own_kernels),
    ignored_switch("--disable-cascade-attn", own_kernels),
    ignored_switch("--disable-hybrid-kv-cache-manager", own_kernels),
    ignored_switch("--disable-custom-all-reduce", own_kernels),
    ignored("--cp-kv-cache-interleave-size", own_kernels),
    ignored("--profiler-config", own_kernels),

    // Speculation, and what passes between servers.
    shortly("-sc", ignored("--speculative-config", later_speculation)),
    ignored("--speculative-model", later_speculation),
    ignored("--num-speculative-tokens", later_speculation),
    ignored("--spec-method", later_speculation),
    ignored("--spec-model", later_speculation),
    ignored("--spec-tokens", later_speculation),
    ignored("--speculative-draft-tensor-parallel-size", later_speculation),
    ignored("--speculative-max-model-len", later_speculation),
    ignored("--speculative-disable-by-batch-size", later_speculation),
    ignored("--ngram-prompt-lookup-max", later_speculation),
    ignored("--ngram-prompt-lookup-min", later_speculation),
    ignored("--kv-transfer-config", no_kv_exchange),
    ignored("--kv-events-config", no_kv_exchange),
    ignored("--ec-transfer-config", no_kv_exchange),
    ignored("--weight-transfer-config", base_stays),
    ignored("--worker-extension-cls", base_stays),
    ignored("--worker-cls", one_process),
    ignored_switch("--enable-scale-out", "routes do not depend on it"),
    ignored_switch("--tokens-only", "routes do not depend on it"),
    ignored_switch("--enable-sleep-mode", "routes do not depend on it"),
    ignored_switch("--enable-tokenizer-info-endpoint", "routes do not depend on it"),

    // Ranks and replicas.
    shortly("-tp", mapped("--tensor-parallel-size", "--tp")),
    shortly("-dp", mapped("--data-parallel-size", "--dp")),
    ForeignOption{.name = "--enable-expert-parallel",
                  .short_name = "-ep",
                  .arity = Arity::none,
                  .use = Use::mapped,
                  .here = "--ep",
                  .values = expert_parallel_values},
    shortly("-pp", refused("--pipeline-parallel-size", "shares layers out, and motley does not",
                           "give the GPUs to --tp", one_values)),
    shortly("-pcp",
            refused("--prefill-context-parallel-size", "shares prompts out, and motley does not",
                    "give the GPUs to --tp", one_values)),
    shortly("-dcp", ignored("--decode-context-parallel-size",
                            "ranks share keys and values out as they share the model")),
    shortly("-dpl", refused("--data-parallel-size-local", one_host, leave_out)),
    shortly("-dpn", refused("--data-parallel-rank", one_host, leave_out)),
    shortly("-dpr", refused("--data-parallel-start-rank", one_host, leave_out)),
    shortly("-dpa", refused("--data-parallel-address", one_host, leave_out)),
    shortly("-dpp", refused("--data-parallel-rpc-port", one_host, leave_out)),
    shortly("-dph", refused_switch("--data-parallel-hybrid-lb", one_host, leave_out)),
    shortly("-dpe", refused_switch("--data-parallel-external-lb", one_host, leave_out)),
    refused_switch("--headless", one_host, leave_out),
    shortly("-n", refused("--nnodes", one_host, leave_out, one_values)),
    shortly("-r", refused("--node-rank", one_host, leave_out, zero_values)),
    ignored("--master-addr", one_process),
    ignored("--master-port", one_process),
    shortly("-dpb", ignored("--data-parallel-backend", one_process)),
    ignored("--distributed-executor-backend", one_process),
    ignored_switch("--ray-workers-use-nsight", one_process),
    shortly("-asc", ignored("--api-server-count", one_process)),
    ignored_switch("--disable-frontend-multiprocessing", one_process),
    ignored("--renderer-num-workers", one_process),
    ignored("--tokenizer-pool-size", one_process),
    ignored("--tokenizer-pool-type", one_process),
    ignored("--tokenizer-pool-extra-config", one_process),
    ignored_switch("--numa-bind", one_process),
    ignored_switch("--disable-nccl-for-dp-synchronization", one_process),
    ignored("--data-parallel-supervisor-port", one_process),
    ignored("--all2all-backend", own_experts),
    ignored_switch("--enable-eplb", own_experts),
    ignored("--eplb-config", own_experts),
    ignored("--eplb-window-size", own_experts),
    ignored("--eplb-step-interval", own_experts),
    ignored_switch("--eplb-log-balancedness", own_experts),
    ignored_switch("--enable-elastic-ep", own_experts),
    ignored("--num-redundant-experts", own_experts),
    ignored("--expert-placement-strategy", own_experts),
    ignored_switch("--enable-dbo", own_experts),
    ignored("--dbo-decode-token-threshold", own_experts),
    ignored("--dbo-prefill-token-threshold", own_experts),

    // Chats, tools and answers.
    ignored_switch("--enable-auto-tool-choice", always_there),
    ignored_switch("--exclude-tools-when-tool-choice-none", always_there),
    ignored_switch("--enable-prompt-tokens-details", always_there),
    ignored_switch("--enable-request-id-headers", always_there),
    ignored("--tool-call-parser", "the model's template shows the form of calls",
            tool_parser_values),
    ignored("--reasoning-parser", "the model's template shows the form of reasoning",
            reasoning_parser_values),
    ignored_switch("--enable-reasoning", always_there),
    refused("--tool-parser-plugin", python, "name a form with --tool-form"),
    refused("--reasoning-parser-plugin", python, "name a form with --reasoning-form"),
    ignored("--reasoning-config", "the model's template shows the form of reasoning"),
    refused("--tool-server", "has the server run tools", "let the client run them"),
    mapped_switch("--trust-request-chat-template", "--allow-request-templates"),
    refused("--chat-template-content-format", "changes what templates see",
            "leave it out: templates see contents as text", content_format_values),
    refused("--default-chat-template-kwargs", "changes prompts",
            "send chat_template_kwargs with requests", no_json_values),
    refused("--response-role", "changes the role in answers", leave_out, role_values),
    refused_switch("--return-tokens-as-token-ids", "changes the form of answers",
                   "send return_tokens_as_token_ids with requests"),
    refused_switch("--enable-force-include-usage", "changes the form of answers",
                   "send stream_options with requests"),
    refused_list("--logits-processors", python, leave_out),
    refused("--logits-processor-pattern", python, leave_out),
    refused("--io-processor-plugin", python, leave_out),
    ignored("--guided-decoding-backend", grammars),
    ignored_switch("--guided-decoding-disable-fallback", grammars),
    ignored_switch("--guided-decoding-disable-any-whitespace", grammars),
    ignored_switch("--guided-decoding-disable-additional-properties", grammars),
    ignored("--structured-outputs-config", grammars),

    // Connections and the log.
    ForeignOption{.name = "--allowed-origins",
                  .arity = Arity::several,
                  .use = Use::mapped,
                  .here = "--cors-origin"},
    mapped("--shutdown-timeout", "--drain-timeout"),
    ignored_list("--allowed-methods", "pages may use what the routes need"),
    ignored_list("--allowed-headers", "pages may use what the routes need"),
    ignored_switch("--allow-credentials", "pages may use what the routes need"),
    refused_list("--api-key", "shows the key to other users of the machine",
                 "give --api-key-file F"),
    mapped("--uds", "--listen"),
    refused("--root-path", "changes paths", "let the proxy take the prefix off"),
    refused("--ssl-keyfile", no_tls, use_proxy),
    refused("--ssl-certfile", no_tls, use_proxy),
    refused("--ssl-ca-certs", no_tls, use_proxy),
    refused("--ssl-cert-reqs", no_tls, use_proxy, zero_values),
    refused("--ssl-ciphers", no_tls, use_proxy),
    refused_switch("--enable-ssl-refresh", no_tls, use_proxy),
    refused_switch("--grpc", "asks for gRPC", "use HTTP"),
    refused("--middleware", python, leave_out),
    ignored("--h11-max-incomplete-event-size", "heads and bodies have limits of their own"),
    ignored("--h11-max-header-count", "heads and bodies have limits of their own"),
    ignored_switch("--disable-fastapi-docs", "there is no such page"),
    ignored_switch("--enable-offline-docs", "there is no such page"),
    ignored("--uvicorn-log-level", own_log),
    ignored_switch("--disable-uvicorn-access-log", own_log),
    ignored("--disable-access-log-for-endpoints", own_log),
    ignored("--log-config-file", own_log),
    ignored("--max-log-len", own_log),
    ignored_switch("--enable-log-requests", own_log),
    ignored_switch("--disable-log-requests", own_log),
    ignored_switch("--enable-log-outputs", own_log),
    ignored_switch("--enable-log-deltas", own_log),
    ignored_switch("--enable-logging-iteration-details", own_log),
    ignored_switch("--log-error-stack", own_log),
    ignored_switch("--disable-log-stats", own_metrics),
    ignored_switch("--aggregate-engine-logging", own_metrics),
    ignored_switch("--enable-server-load-tracking", own_metrics),
    ignored_switch("--enable-per-request-metrics", own_metrics),
    ignored_switch("--enable-mfu-metrics", own_metrics),
    ignored_switch("--kv-cache-metrics", own_metrics),
    ignored("--kv-cache-metrics-sample", own_metrics),
    ignored_switch("--cudagraph-metrics", own_metrics),
    ignored("--show-hidden-metrics-for-version", own_metrics),
    ignored("--otlp-traces-endpoint", own_metrics),
    ignored_list("--collect-detailed-traces", own_metrics),
    ignored_switch("--fail-on-environ-validation", "the environment is not read"),
    ignored("--fingerprint-mode", "answers have the fingerprint that motley gives"),
    ignored("--fingerprint-value", "answers have the fingerprint that motley gives"),

    // Images, sounds and videos.
    ignored_switch("--language-model-only", text_only),
    ignored("--limit-mm-per-prompt", text_only),
    ignored("--mm-processor-kwargs", text_only),
    ignored("--media-io-kwargs", text_only),
    ignored("--allowed-local-media-path", text_only),
    ignored_list("--allowed-media-domains", text_only),
    ignored_switch("--enable-mm-embeds", text_only),
    ignored_switch("--interleave-mm-strings", text_only),
    ignored_switch("--skip-mm-profiling", text_only),
    ignored_switch("--disable-mm-preprocessor-cache", text_only),
    ignored_switch("--disable-chunked-mm-input", text_only),
    ignored("--mm-processor-cache-gb", text_only),
    ignored("--mm-processor-cache-type", text_only),
    ignored("--mm-shm-cache-max-object-size-mb", text_only),
    ignored("--mm-encoder-tp-mode", text_only),
    ignored("--mm-encoder-attn-backend", text_only),
    ignored("--video-pruning-rate", text_only),
    ignored_switch("--enable-multimodal-encoder-data-parallel", text_only),

    // Recurrent layers.
    ignored("--mamba-cache-dtype", "states of recurrent layers have a layout of their own"),
    ignored("--mamba-ssm-cache-dtype", "states of recurrent layers have a layout of their own"),
    ignored("--mamba-block-size", "states of recurrent layers have a layout of their own"),
    ignored("--mamba-cache-mode", "states of recurrent layers have a layout of their own"),
});

}  // namespace

std::span<const ForeignOption> foreign_options() { return table; }

}  // namespace motley::cli
