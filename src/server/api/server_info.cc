#include "server/api/server_info.h"

#include <utility>

#include "base/cat.h"
#include "base/json/json.h"
#include "base/version.h"

namespace motley::server {

std::string ServerInfo::digest() const {
  // FNV-1a: a mark to compare, not a secret.
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const auto& [name, value] : arithmetic) {
    for (const char c : cat(name, "=", value, "\n")) {
      hash ^= static_cast<unsigned char>(c);
      hash *= 0x100000001b3ULL;
    }
  }
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (int shift = 60; shift >= 0; shift -= 4) text += digits[(hash >> shift) & 15];
  return text;
}

std::string ServerInfo::json(bool takes_adapters) const {
  json::Object decides;
  for (const auto& [name, value] : arithmetic) decides.add(name, value);
  json::Value lora;
  if (takes_adapters)
    lora = json::Object{{"max_lora_rank", max_adapter_rank}, {"max_loras", max_adapters}};
  // A load reaches all replicas. Clients that see several refuse to load adapters.
  json::Object parallel{{"data_parallel_size", 1}, {"tensor_parallel_size", ranks}};
  json::Object model{{"dtype", cat("torch.", compute)}, {"logprobs_mode", logprobs_mode}};
  json::Object config{{"model_config", std::move(model)},
                      {"lora_config", std::move(lora)},
                      {"parallel_config", std::move(parallel)},
                      {"weight_transfer_config", json::Value()}};
  json::Object motley{{"version", version()},
                      {"replicas", replicas},
                      {"arithmetic", std::move(decides)},
                      {"digest", digest()}};
  return json::write(json::Object{{"vllm_config", std::move(config)},
                                  {"vllm_env", json::Object()},
                                  {"system_env", json::Object()},
                                  {"motley", std::move(motley)}});
}

}  // namespace motley::server
