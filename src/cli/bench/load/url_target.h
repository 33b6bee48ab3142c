#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "cli/bench/load/run.h"
#include "net/server_url.h"

namespace motley::cli {

// Sends a load's requests as streamed completions to a server with OpenAI's protocol.
class UrlTarget final : public LoadTarget {
 public:
  struct Options {
    net::ServerUrl url;
    std::string key;                   // sent as a bearer token unless empty
    std::optional<std::string> model;  // the base; nothing: the first model in the server's list
    // Prompts are lists of token ids below this, which every tokenizer has.
    std::int64_t vocabulary = 256;
  };

  // Asks the server for its models. Those with a parent are adapters; if the options name a base,
  // only its own.
  static Result<std::unique_ptr<UrlTarget>> open(const Options& options);
  ~UrlTarget() override;

  const std::string& base() const;
  std::size_t adapters() const override;
  std::int64_t vocabulary() const override;
  void send(PlannedRequest request, FlightObserver& observer) override;

 private:
  class Client;
  explicit UrlTarget(std::unique_ptr<Client> client);

  std::unique_ptr<Client> client_;
};

}  // namespace motley::cli
