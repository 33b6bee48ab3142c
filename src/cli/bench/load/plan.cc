#include "cli/bench/load/plan.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace motley::cli {
namespace {

// Advances the state, and mixes it into 64 random bits.
std::uint64_t random_bits(std::uint64_t& state) {
  state += 0x9e3779b97f4a7c15U;
  std::uint64_t bits = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9U;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebU;
  return bits ^ (bits >> 31);
}

double even_number(std::uint64_t& state) {
  return static_cast<double>(random_bits(state) >> 11) * 0x1p-53;
}

}  // namespace

LoadPlan::LoadPlan(const LoadShape& shape, std::size_t adapters, std::int64_t vocabulary)
    : shape_(shape),
      vocabulary_(static_cast<std::uint64_t>(vocabulary)),
      state_(shape.seed),
      gap_state_(~shape.seed) {
  MOTLEY_CHECK(vocabulary > 0, "prompts of some tokens");
  double sum = 0;
  for (std::size_t i = 0; i < adapters; ++i)
    until_.push_back(sum += std::pow(static_cast<double>(i + 1), -shape.zipf));
  for (double& share : until_) share /= sum;
}

std::int64_t LoadPlan::length(const TokenRange& range) {
  const auto choices = static_cast<std::uint64_t>(range.most - range.least + 1);
  return range.least + static_cast<std::int64_t>(random_bits(state_) % choices);
}

PlannedRequest LoadPlan::next() {
  PlannedRequest request;
  request.tokens.resize(static_cast<std::size_t>(length(shape_.prompt)));
  for (std::int32_t& token : request.tokens)
    token = static_cast<std::int32_t>(random_bits(state_) % vocabulary_);
  request.max_tokens = length(shape_.output);
  if (!until_.empty()) {
    const auto at = std::ranges::upper_bound(until_, even_number(state_));
    request.adapter = std::min(static_cast<std::size_t>(at - until_.begin()), until_.size() - 1);
  }
  return request;
}

Duration LoadPlan::gap(double a_second) {
  const double wait = -std::log1p(-even_number(gap_state_)) / a_second;
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(wait));
}

}  // namespace motley::cli
