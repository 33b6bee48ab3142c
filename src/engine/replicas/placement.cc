#include "engine/replicas/placement.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace motley::engine {
namespace {

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL;
  return hash ^ (hash >> 29);
}

std::uint64_t hash_of(std::string_view text) { return std::hash<std::string_view>()(text); }

}  // namespace

Placement::Placement(const Options& options) : options_(options), given_(options.replicas) {
  MOTLEY_CHECK(options.replicas > 0 && options.replicas <= max_replicas, "a bit for each replica");
}

Placement::Keys Placement::keys_of(const Request& request) const {
  Keys keys;
  std::uint64_t hash = hash_of(request.cache_salt);
  for (const lora::ScaledAdapter& each : request.adapters) {
    keys.adapters.push_back(mix(1, hash_of(each.name)));
    hash = mix(mix(hash, hash_of(each.name)), std::bit_cast<std::uint32_t>(each.scale));
  }
  // The last token is always computed.
  const auto block = static_cast<std::size_t>(options_.block_tokens);
  const std::size_t blocks = request.tokens.empty() ? 0 : (request.tokens.size() - 1) / block;
  keys.blocks.reserve(blocks);
  for (std::size_t i = 0; i < blocks * block; ++i) {
    hash = mix(hash, static_cast<std::uint32_t>(request.tokens[i]));
    if ((i + 1) % block == 0) keys.blocks.push_back(mix(2, hash));
  }
  if (options_.keeps_states && blocks > 0)
    keys.saved = static_cast<std::size_t>(
        request.reused_up_to(std::ssize(request.tokens), options_.block_tokens) /
        options_.block_tokens);
  return keys;
}

Placement::Replicas Placement::holders(std::uint64_t key) const {
  for (const auto* const half : {&newer_, &older_}) {
    if (const auto found = half->find(key); found != half->end()) return found->second;
  }
  return 0;
}

std::vector<std::size_t> Placement::order(const Keys& keys,
                                          std::span<const ReplicaStatus> statuses) const {
  std::vector<std::int64_t> costs(statuses.size());
  std::vector<std::size_t> serving;
  for (std::size_t i = 0; i < statuses.size(); ++i) {
    costs[i] = statuses[i].sequences * options_.sequence_tokens;
    if (statuses[i].serves) serving.push_back(i);
  }
  for (std::size_t a = 0; a < keys.adapters.size(); ++a) {
    const Replicas had = holders(keys.adapters[a]);
    for (const std::size_t i : serving) {
      const bool there = statuses[i].ready_adapters[a] || ((had >> i) & 1) != 0;
      if (!there) costs[i] += options_.adapter_tokens;
    }
  }
  count_blocks(keys, [&](Replicas having, std::int64_t blocks) {
    for (const std::size_t i : serving)
      if (((having >> i) & 1) != 0) costs[i] -= blocks * options_.block_tokens;
  });
  std::ranges::sort(serving, {}, [&](std::size_t i) { return std::tuple(costs[i], given_[i], i); });
  return serving;
}

void Placement::count_blocks(const Keys& keys,
                             FunctionRef<void(Replicas, std::int64_t)> count) const {
  // Not so many that others stay idle.
  const std::int64_t counted = 8 * options_.sequence_tokens / options_.block_tokens;
  Replicas open = ~Replicas{0};
  if (options_.keeps_states) {
    // The last block of the prompt whose state a replica has.
    for (auto blocks = std::ssize(keys.blocks); blocks > 0 && open != 0; --blocks) {
      const Replicas having = open & holders(keys.blocks[static_cast<std::size_t>(blocks - 1)]);
      if (having != 0) count(having, std::min<std::int64_t>(blocks, counted));
      open &= ~having;
    }
    return;
  }
  // A block counts for a replica that has all before it.
  for (const std::uint64_t key :
       std::span(keys.blocks)
           .first(std::min(keys.blocks.size(), static_cast<std::size_t>(counted)))) {
    open &= holders(key);
    if (open == 0) break;
    count(open, 1);
  }
}

void Placement::place(const Keys& keys, std::size_t replica) {
  ++given_[replica];
  for (const std::uint64_t key : keys.adapters) remember(key, Replicas{1} << replica);
  if (options_.keeps_states) {
    if (keys.saved > 0) remember(keys.blocks[keys.saved - 1], Replicas{1} << replica);
    return;
  }
  for (const std::uint64_t key : keys.blocks) remember(key, Replicas{1} << replica);
}

void Placement::remember(std::uint64_t key, Replicas replica) {
  const Replicas all = holders(key) | replica;
  if (newer_.size() >= options_.remembered) {
    older_ = std::exchange(newer_, {});
  }
  newer_[key] = all;
}

}  // namespace motley::engine
