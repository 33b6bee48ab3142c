// How often two distributions draw the same token from the same seed, which is how often
// speculation would keep a drafted one: for each adapter of models/demo, over held-out text of its
// own, against the same model with a part of the adapter or none of it.
//   build/release/bench/bench_draw_acceptance [MODEL]

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/cat.h"
#include "base/system/files.h"
#include "kernels/sampling_arithmetic.h"
#include "lora/files/load.h"
#include "lora/pages/pool.h"
#include "model/model.h"
#include "runner/runner.h"
#include "runner/score.h"
#include "tensor/device/device.h"

namespace motley::bench {
namespace {

namespace fs = std::filesystem;
using kernels::sampling::Race;

constexpr int draws_a_position = 4;
constexpr std::size_t lines_of_each = 8;  // adapter

// Shares of all tokens, the greatest 1.
using Shares = std::vector<float>;

struct Acceptance {
  double distance = 0;   // half the sum of differences
  double rejection = 0;  // of rejection sampling, and the most that any rule can have
  double race = 0;       // measured
  double bound = 0;      // below which the race can't be
  double in_turn = 0;    // one number that points into the shares in the order of ids

  Acceptance& operator+=(const Acceptance& other) {
    distance += other.distance;
    rejection += other.rejection;
    race += other.race;
    bound += other.bound;
    in_turn += other.in_turn;
    return *this;
  }
};

struct Runner {
  const Shares& shares;
  std::uint64_t first = ~std::uint64_t{0};
  float time = std::numeric_limits<float>::max();

  void take(const Race& race, std::uint32_t id, std::uint32_t word) {
    if (shares[id] <= 0 || !kernels::sampling::may_arrive_by(time, word, shares[id])) return;
    first = std::min(first, race.arrival(id, word, shares[id]));
    time = kernels::sampling::time_of_arrival(first);
  }
};

bool draw_the_same(const Race& race, const Shares& target, const Shares& draft) {
  Runner of_target{.shares = target};
  Runner of_draft{.shares = draft};
  for (std::uint32_t id = 0; id < target.size(); id += 4) {
    const kernels::sampling::Words upper = race.upper(id / 4);
    for (std::uint32_t i = id; i < std::min<std::size_t>(id + 4, target.size()); ++i) {
      of_target.take(race, i, upper.of[i % 4]);
      of_draft.take(race, i, upper.of[i % 4]);
    }
  }
  return kernels::sampling::id_of_arrival(of_target.first) ==
         kernels::sampling::id_of_arrival(of_draft.first);
}

Acceptance acceptance(const Shares& target, const Shares& draft, std::uint64_t seed) {
  double sum_of_target = 0;
  double sum_of_draft = 0;
  for (std::size_t i = 0; i < target.size(); ++i) {
    sum_of_target += double{target[i]};
    sum_of_draft += double{draft[i]};
  }
  Acceptance result;
  double p_end = 0;
  double q_end = 0;
  for (std::size_t i = 0; i < target.size(); ++i) {
    const double p_begin = p_end;
    const double q_begin = q_end;
    p_end += double{target[i]} / sum_of_target;
    q_end += double{draft[i]} / sum_of_draft;
    result.rejection += std::min(p_end - p_begin, q_end - q_begin);
    result.in_turn += std::max(0.0, std::min(p_end, q_end) - std::max(p_begin, q_begin));
  }
  result.distance = 1 - result.rejection;
  result.bound = (1 - result.distance) / (1 + result.distance);
  for (std::uint64_t draw = 0; draw < draws_a_position; ++draw) {
    const Race race{.seed = seed, .draw = draw};
    result.race += draw_the_same(race, target, draft) ? 1.0 / draws_a_position : 0;
  }
  return result;
}

class Demo {
 public:
  explicit Demo(const fs::path& folder)
      : device_(tensor::open_device({.kind = tensor::DeviceChoice::Kind::cpu}, {}).value()),
        model_(model::Model::load(folder, *device_, {.exact = true}).value()) {
    for (const std::string& name : list_folder(folder / "adapters").value()) names_.push_back(name);
    pool_ = lora::Pool::create(*device_, {.bytes = std::uint64_t{64} << 20}).value();
    for (const std::string& name : names_)
      handles_.push_back(
          pool_
              ->load(
                  name,
                  lora::load_adapter(folder / "adapters" / name, {}, model_->base_view()).value())
              .value());
    lines_ = runner::read_score_lines(folder / "held_out.jsonl",
                                      {.vocabulary = vocabulary(), .adapters = names_})
                 .value();
    runner_ = runner::Runner::create(*model_, *device_,
                                     {.max_rows = 256,
                                      .max_sequences = 16,
                                      .max_tokens = 1024,
                                      .pages = 1024,
                                      .adapters = pool_.get(),
                                      .adapter_rank = 64,
                                      .mix_rank = 64})
                  .value();
  }

  std::int64_t vocabulary() const { return model_->config().vocabulary; }
  const std::vector<std::string>& names() const { return names_; }

  // Shares behind every token of the first lines of this adapter, which is applied at that scale.
  std::vector<Shares> shares_of(std::size_t adapter, float scale, float temperature) {
    std::vector<runner::ScoreLine> lines;
    std::vector<lora::Mix> mixes;
    for (const runner::ScoreLine& line : lines_) {
      if (lines.size() == lines_of_each || line.adapters.empty() ||
          line.adapters[0].name != names_[adapter])
        continue;
      lines.push_back(line);
      std::vector<lora::Mix::Part> parts;
      if (scale > 0) parts.push_back({.adapter = handles_[adapter], .scale = scale});
      mixes.push_back(lora::Mix::make(parts).value());
    }
    const auto width = static_cast<std::size_t>(vocabulary());
    const std::vector<runner::ScoreResult> results =
        runner::score(*runner_, lines, mixes, {.top = static_cast<int>(width)}).value();
    std::vector<Shares> all;
    for (const runner::ScoreResult& result : results) {
      for (std::size_t at = 0; at < result.top_ids.size(); at += width) {
        Shares shares(width);
        for (std::size_t i = at; i < at + width; ++i)
          shares[static_cast<std::size_t>(result.top_ids[i])] = kernels::sampling::share_of(
              result.top_logprobs[i], result.top_logprobs[at], 1 / temperature);
        all.push_back(std::move(shares));
      }
    }
    return all;
  }

 private:
  std::unique_ptr<tensor::Device> device_;
  std::unique_ptr<model::Model> model_;
  std::vector<std::string> names_;
  std::unique_ptr<lora::Pool> pool_;
  std::vector<lora::Handle> handles_;
  std::vector<runner::ScoreLine> lines_;
  std::unique_ptr<runner::Runner> runner_;
};

void measure(const fs::path& folder) {
  Demo demo(folder);
  std::printf("%-12s %-12s %-12s %9s %9s %9s %9s %9s\n", "temperature", "draft with", "positions",
              "distance", "rejection", "race", "bound", "in turn");
  for (const float temperature : {1.0F, 0.6F}) {
    for (const int percent : {90, 75, 50, 0}) {
      const float scale = static_cast<float>(percent) / 100;
      Acceptance sum;
      int positions = 0;
      for (std::size_t adapter = 0; adapter < demo.names().size(); ++adapter) {
        const std::vector<Shares> target = demo.shares_of(adapter, 1, temperature);
        const std::vector<Shares> draft = demo.shares_of(adapter, scale, temperature);
        for (std::size_t i = 0; i < target.size(); ++i)
          sum += acceptance(target[i], draft[i], static_cast<std::uint64_t>(positions++));
      }
      const double n = positions;
      std::printf("%-12.1f %-12s %-12d %9.3f %9.3f %9.3f %9.3f %9.3f\n", double{temperature},
                  percent > 0 ? cat(percent, " %").c_str() : "base", positions, sum.distance / n,
                  sum.rejection / n, sum.race / n, sum.bound / n, sum.in_turn / n);
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace motley::bench

int main(int count, char** words) {
  motley::bench::measure(count > 1 ? words[1] : "models/demo");
  return 0;
}
