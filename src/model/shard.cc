#include "model/shard.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <vector>

#include "base/cat.h"
#include "base/check.h"
#include "base/function_ref.h"

namespace motley::model {
namespace {

// What is cut, into how many numbers it could be, and over how many ranks it is.
struct CutWidth {
  std::string_view name;
  std::int64_t width = 0;
  int ranks = 1;
};
std::vector<CutWidth> widths_of(const Config& config, const Ranks& of) {
  const std::int64_t dense_layers = std::ranges::count(config.moe_layers, false);
  std::vector<CutWidth> widths{{"vocabulary", config.vocabulary, of.count}};
  if (dense_layers > 0 || config.dense_and_experts)
    widths.push_back({"dense intermediate size", config.dense_intermediate, of.count});
  if (config.has_experts())
    widths.push_back(
        {"expert intermediate size", config.moe.intermediate, of.count / of.expert_groups});
  if (config.has_experts() && config.moe.shared_intermediate > 0)
    widths.push_back(
        {"shared expert's intermediate size", config.moe.shared_intermediate, of.count});
  return widths;
}

Result<void> check_groups(const Config& config, const Ranks& of) {
  const int groups = of.expert_groups;
  if (groups == 1) return {};
  if (!config.has_experts())
    return Error(ErrorCode::invalid_argument,
                 cat("the model has no experts to deal over ", groups, " groups of ranks"), "--ep",
                 cat("leave it out; --tp ", of.count, " cuts the model over as many ranks"));
  if (groups > config.moe.router.experts)
    return Error(ErrorCode::invalid_argument,
                 cat(groups, " groups of ranks are more than the model's ",
                     config.moe.router.experts, " experts"),
                 "--ep", cat("use at most ", config.moe.router.experts));
  MOTLEY_CHECK(groups > 0 && of.count % groups == 0, "groups of equally many ranks");
  return {};
}

// The largest piece of which there is one for each rank.
std::int64_t piece_of(std::int64_t width, int ranks) {
  std::int64_t piece = 32;
  while (piece > 1 && (width % piece != 0 || width / piece < ranks)) piece /= 2;
  return piece;
}

// Of what stands before each part; 0 where that is nothing.
std::int64_t unit_of(int parts, FunctionRef<dist::Range(int)> part) {
  std::int64_t unit = 0;
  for (int i = 0; i < parts; ++i) unit = std::gcd(unit, part(i).begin);
  return unit;
}

std::string range_of(std::string_view name, const dist::Range& range, std::int64_t count) {
  if (range.empty()) return cat("no ", name);
  if (range.size() == 1) return cat(name, " ", range.begin, " of ", count);
  return cat(name, " ", range.begin, "-", range.end - 1, " of ", count);
}

}  // namespace

Result<Shard> shard_of(const Config& config, const Ranks& of) {
  const auto& [ranks, rank, expert_groups, in_pieces] = of;
  MOTLEY_TRY_VOID(check_groups(config, of));
  for (const auto& [name, width, parts] : widths_of(config, of)) {
    if (parts > width)
      return Error(ErrorCode::invalid_argument,
                   cat(parts, " ranks are more than the model's ", name, " of ", width), "--tp",
                   "use fewer ranks");
  }
  const dist::ExpertShard experts =
      dist::deal_experts(config.moe.router.experts, expert_groups, ranks, rank);
  const auto deal = [&](std::int64_t count) { return dist::deal(count, ranks, rank); };
  const auto deal_width = [&](std::int64_t width, int parts, int part) {
    const std::int64_t piece = in_pieces ? piece_of(width, parts) : 1;
    return dist::deal(width / piece, parts, part).times(piece);
  };
  const auto width_unit = [&](std::int64_t width, int parts) {
    return unit_of(parts, [&](int part) { return deal_width(width, parts, part); });
  };
  const MoeConfig& moe = config.moe;
  Shard shard{.rank = rank,
              .ranks = ranks,
              .dense = deal_width(config.dense_intermediate, ranks, rank),
              .experts = experts,
              .expert_columns = deal_width(config.moe.intermediate, experts.ranks, experts.rank),
              .shared_expert = deal_width(config.moe.shared_intermediate, ranks, rank),
              .vocabulary = deal(config.vocabulary),
              .units = {}};
  shard.units = {.dense = width_unit(config.dense_intermediate, ranks),
                 .expert_columns = width_unit(moe.intermediate, experts.ranks),
                 .shared_expert = width_unit(moe.shared_intermediate, ranks)};
  return shard;
}

namespace {

HeadPart part_of(const Shard& shard, FunctionRef<dist::HeadShard(int)> deal) {
  return {.own = deal(shard.rank),
          .unit = unit_of(shard.ranks, [&](int rank) { return deal(rank).heads; })};
}

// Adds what a mixer's heads are called, once for mixers that have equally many.
struct HeadNames {
  const Shard& shard;
  std::vector<std::string>& parts;

  void add(std::string name) const {
    if (std::ranges::find(parts, name) == parts.end()) parts.push_back(std::move(name));
  }
  void operator()(const GroupedConfig& mixer) const {
    const HeadPart part = heads_of(mixer, shard);
    add(range_of("heads", part.own.heads, mixer.heads));
    add(range_of("KV heads", part.own.kv_heads, mixer.kv_heads));
  }
  void operator()(const LatentConfig& mixer) const {
    add(range_of("heads", heads_of(mixer, shard).own.heads, mixer.heads));
  }
  void operator()(const DeltaNetConfig& mixer) const {
    const HeadPart part = heads_of(mixer, shard);
    add(range_of("value heads", part.own.heads, mixer.value_heads));
    add(range_of("key heads", part.own.kv_heads, mixer.key_heads));
  }
};

}  // namespace

HeadPart heads_of(const GroupedConfig& mixer, const Shard& shard) {
  return part_of(shard, [&](int rank) {
    return dist::deal_heads(mixer.heads, mixer.kv_heads, shard.ranks, rank);
  });
}

HeadPart heads_of(const LatentConfig& mixer, const Shard& shard) {
  return part_of(shard, [&](int rank) -> dist::HeadShard {
    return {.heads = dist::deal(mixer.heads, shard.ranks, rank), .kv_heads = {0, 1}};
  });
}

HeadPart heads_of(const DeltaNetConfig& mixer, const Shard& shard) {
  return part_of(shard, [&](int rank) {
    return dist::deal_heads(mixer.value_heads, mixer.key_heads, shard.ranks, rank);
  });
}

bool has_heads(const Config& config, const Shard& shard) {
  return std::ranges::all_of(config.mixers, [&](const MixerConfig& each) {
    return std::visit([&](const auto& mixer) { return !heads_of(mixer, shard).own.heads.empty(); },
                      each);
  });
}

std::string describe(const Shard& shard, const Config& config) {
  std::vector<std::string> parts;
  for (const MixerConfig& mixer : config.mixers) std::visit(HeadNames{shard, parts}, mixer);
  if (std::ranges::count(config.moe_layers, false) > 0 || config.dense_and_experts)
    parts.push_back(range_of("dense columns", shard.dense, config.dense_intermediate));
  if (config.has_experts() && shard.deals_experts())
    parts.push_back(range_of("experts", shard.experts.experts, config.moe.router.experts));
  if (config.has_experts() && shard.cuts_experts())
    parts.push_back(range_of("expert columns", shard.expert_columns, config.moe.intermediate));
  if (config.has_experts() && config.moe.shared_intermediate > 0)
    parts.push_back(
        range_of("shared expert columns", shard.shared_expert, config.moe.shared_intermediate));
  parts.push_back(range_of("tokens", shard.vocabulary, config.vocabulary));
  return join(parts);
}

}  // namespace motley::model
