#include "engine/sequences/jobs.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/cat.h"

namespace motley::engine {
namespace {

std::string flow_of(const Request& request) {
  std::string flow;
  for (const lora::ScaledAdapter& each : request.adapters) flow += cat(each.name, ",");
  return flow;
}

}  // namespace

std::shared_ptr<Job> Jobs::find(RequestId request) const {
  const auto found = jobs_.find(request);
  return found == jobs_.end() ? nullptr : found->second;
}

void Jobs::charge(Job& job, const Request& request) {
  job.cost =
      static_cast<std::uint64_t>(request.tokens.size()) +
      static_cast<std::uint64_t>(request.max_tokens) * static_cast<std::uint64_t>(request.choices);
  job.client = &clients_.of(request.client);
  job.client->weight = request.client_weight;
  FairFlows<AdaptersState>& flows = job.client->flows;
  job.tag = flows.charge(flows.of(flow_of(request)), job.cost);
}

void Jobs::add(const std::shared_ptr<Job>& job) {
  jobs_.emplace(job->id, job);
  ++job->client->requests;
}

void Jobs::start(Job& job) {
  job.client->flows.begin(job.tag);
  job.turn = clients_.charge(*job.client, job.cost);
  clients_.begin(job.turn);
}

bool Jobs::remove(const Job& job) {
  if (jobs_.erase(job.id) == 0) return false;
  const auto used = static_cast<std::uint64_t>(job.prompt_tokens() + job.completion_tokens);
  if (job.started) clients_.refund(*job.client, job.cost - std::min(job.cost, used));
  --job.client->requests;
  return true;
}

void Jobs::mark(Job& job, Error error) {
  if (!job.failure) job.failure = std::move(error);
  marked_ = true;
}

}  // namespace motley::engine
