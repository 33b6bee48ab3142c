#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace motley::server {

// What GET /server_info says of a server, with vLLM's names where it has some.
struct ServerInfo {
  std::string compute = "float32";  // number type of activations
  std::string logprobs_mode = "raw_logprobs";
  int max_adapter_rank = 256;
  std::int64_t max_adapters = 10'000;
  int ranks = 1;     // of an engine
  int replicas = 1;  // engines
  // What decides the bits of answers, by name. Servers with the same list compute the same.
  std::vector<std::pair<std::string, std::string>> arithmetic = {};

  // Of that list: 16 hexadecimal digits.
  std::string digest() const;
  // `takes_adapters`: clients may load adapters.
  std::string json(bool takes_adapters) const;
};

}  // namespace motley::server
