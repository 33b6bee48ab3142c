#include "kernels/tuning/crossovers.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

namespace motley::kernels {
namespace {

// Beyond the noise a candidate is measured roughly.
constexpr double hopeless = 1.25;

// Indices into the rows and the candidates of a measurement.
class Choices {
 public:
  explicit Choices(const MeasuredTimes& times) : times_(times) {}

  std::optional<double> us(std::size_t candidate, std::size_t at) const {
    return times_.candidates[candidate].us[at];
  }
  // The fastest; the first of several that are equally fast.
  std::optional<std::size_t> fastest(std::size_t at) const {
    std::optional<std::size_t> best;
    for (std::size_t i = 0; i < times_.candidates.size(); ++i) {
      if (us(i, at) && (!best || *us(i, at) < *us(*best, at))) best = i;
    }
    return best;
  }
  // Whether a candidate is as fast as the fastest, up to noise.
  bool suffices(std::size_t candidate, std::size_t at) const {
    const auto best = fastest(at);
    const auto own = us(candidate, at);
    return !best || (own && *own <= *us(*best, at) * (1 + tuning_noise));
  }

 private:
  const MeasuredTimes& times_;
};

using Us = std::vector<std::optional<double>>;

struct Run {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t candidate = 0;
};

bool suffices(const Choices& choices, std::size_t candidate, const Run& run) {
  for (std::size_t at = run.begin; at < run.end; ++at)
    if (!choices.suffices(candidate, at)) return false;
  return true;
}

}  // namespace

std::vector<std::int64_t> tuning_ladder(std::int64_t most) {
  constexpr std::array<std::int64_t, 22> all{1,   2,    4,    8,    12,   16,  24,  32,
                                             48,  64,   96,   128,  192,  256, 384, 512,
                                             768, 1024, 1536, 2048, 4096, 8192};
  std::vector<std::int64_t> ladder;
  for (const std::int64_t rows : all)
    if (rows <= most) ladder.push_back(rows);
  return ladder;
}

Result<MeasuredTimes> measure_candidates(std::span<const std::string> names,
                                         std::span<const std::int64_t> ladder,
                                         TimeCandidate measure) {
  MeasuredTimes times{.rows = {ladder.begin(), ladder.end()}, .candidates = {}};
  for (const std::string& name : names)
    times.candidates.push_back({.name = name, .us = Us(ladder.size())});
  std::vector<std::size_t> order(names.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t at = 0; at < ladder.size(); ++at) {
    double best = std::numeric_limits<double>::infinity();
    for (const std::size_t candidate : order) {
      MOTLEY_TRY(const std::optional<double> us, measure(candidate, ladder[at], best * hopeless));
      if (us) best = std::min(best, *us);
      times.candidates[candidate].us[at] = us;
    }
    // What was fast is likely to be so with a few more rows, and sets the limit for the others.
    std::ranges::sort(order, {}, [&](std::size_t candidate) {
      const Us& us = times.candidates[candidate].us;
      return std::pair(us[at].value_or(std::numeric_limits<double>::max()), candidate);
    });
  }
  std::erase_if(times.candidates, [](const MeasuredTimes::Candidate& candidate) {
    return std::ranges::none_of(candidate.us, [](const auto& us) { return us.has_value(); });
  });
  return times;
}

std::vector<TunedRow> find_crossovers(const MeasuredTimes& times) {
  const Choices choices(times);
  std::vector<Run> runs;
  for (std::size_t at = 0; at < times.rows.size(); ++at) {
    const std::optional<std::size_t> best = choices.fastest(at);
    if (!best) continue;
    if (runs.empty() || !choices.suffices(runs.back().candidate, at))
      runs.push_back({.begin = at, .candidate = *best});
    runs.back().end = at + 1;
  }
  // The neighbour behind a run may serve it as well.
  for (std::size_t i = runs.size(); i-- > 1;) {
    if (!suffices(choices, runs[i].candidate, runs[i - 1])) continue;
    runs[i].begin = runs[i - 1].begin;
    runs.erase(runs.begin() + static_cast<std::ptrdiff_t>(i) - 1);
  }
  std::vector<TunedRow> rows;
  for (const Run& run : runs)
    rows.push_back(
        {.up_to = times.rows[run.end - 1], .kernel = times.candidates[run.candidate].name});
  if (!rows.empty()) rows.back().up_to = TunedRow::any;
  return rows;
}

}  // namespace motley::kernels
