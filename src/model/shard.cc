#include "model/shard.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "base/cat.h"

namespace motley::model {
namespace {

// What is cut, and into how many numbers it could be.
std::vector<std::pair<std::string_view, std::int64_t>> widths_of(const Config& config) {
  const std::int64_t dense_layers = std::ranges::count(config.moe_layers, false);
  std::vector<std::pair<std::string_view, std::int64_t>> widths{{"vocabulary", config.vocabulary}};
  if (dense_layers > 0) widths.emplace_back("dense intermediate size", config.dense_intermediate);
  if (config.has_experts())
    widths.emplace_back("expert intermediate size", config.moe.intermediate);
  if (config.has_experts() && config.moe.shared_intermediate > 0)
    widths.emplace_back("shared expert's intermediate size", config.moe.shared_intermediate);
  return widths;
}

// The largest piece of which there is one for each rank.
std::int64_t piece_of(std::int64_t width, int ranks) {
  std::int64_t piece = 32;
  while (piece > 1 && (width % piece != 0 || width / piece < ranks)) piece /= 2;
  return piece;
}

std::string range_of(std::string_view name, const dist::Range& range, std::int64_t count) {
  if (range.empty()) return cat("no ", name);
  if (range.size() == 1) return cat(name, " ", range.begin, " of ", count);
  return cat(name, " ", range.begin, "-", range.end - 1, " of ", count);
}

}  // namespace

Result<Shard> shard_of(const Config& config, const Ranks& of) {
  const auto& [ranks, rank, in_pieces] = of;
  for (const auto& [name, width] : widths_of(config)) {
    if (ranks > width)
      return Error(ErrorCode::invalid_argument,
                   cat(ranks, " ranks are more than the model's ", name, " of ", width), "--tp",
                   "use fewer ranks");
  }
  const auto deal = [&](std::int64_t count) { return dist::deal(count, ranks, rank); };
  const auto deal_width = [&](std::int64_t width) {
    const std::int64_t piece = in_pieces ? piece_of(width, ranks) : 1;
    return dist::deal(width / piece, ranks, rank).times(piece);
  };
  Shard shard{.rank = rank,
              .ranks = ranks,
              .heads = {},
              .dense = deal_width(config.dense_intermediate),
              .experts = deal_width(config.moe.intermediate),
              .shared_expert = deal_width(config.moe.shared_intermediate),
              .vocabulary = deal(config.vocabulary)};
  const AttentionConfig& attention = config.attention;
  if (config.latent_attention) {
    shard.heads = {.heads = deal(attention.heads), .kv_heads = {0, 1}};
  } else {
    shard.heads = dist::deal_heads(attention.heads, attention.kv_heads, ranks, rank);
  }
  return shard;
}

std::string describe(const Shard& shard, const Config& config) {
  std::vector<std::string> parts{range_of("heads", shard.heads.heads, config.attention.heads)};
  if (!config.latent_attention)
    parts.push_back(range_of("KV heads", shard.heads.kv_heads, config.attention.kv_heads));
  if (std::ranges::count(config.moe_layers, false) > 0)
    parts.push_back(range_of("dense columns", shard.dense, config.dense_intermediate));
  if (config.has_experts())
    parts.push_back(range_of("expert columns", shard.experts, config.moe.intermediate));
  if (config.has_experts() && config.moe.shared_intermediate > 0)
    parts.push_back(
        range_of("shared expert columns", shard.shared_expert, config.moe.shared_intermediate));
  parts.push_back(range_of("tokens", shard.vocabulary, config.vocabulary));
  return join(parts);
}

}  // namespace motley::model
