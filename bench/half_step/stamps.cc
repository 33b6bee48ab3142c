#include "stamps.h"

#include <algorithm>
#include <cstdio>
#include <map>

namespace motley::bench::HALF_STEP_NAMESPACE {
namespace {

constexpr int first_layer = 6;  // the launches before it fill the pipeline
constexpr const char* whole_names[] = {"go",      "o", "x",    "logits", "choice",
                                       "gate_up", "h", "down", "sum",    "proj"};
constexpr const char* split_names[] = {"go",      "o",    "x",     "logits", "choice",
                                       "experts", "send", "parts", "sum",    "proj"};
constexpr int phases = 10;

class Stamped {
 public:
  Stamped(const Runs& runs, std::vector<long long> all, double cycles_per_us)
      : blocks_(runs.blocks()), all_(std::move(all)), unit_(cycles_per_us) {}

  long long at(int layer, int block, int stamp) const {
    return all_[(static_cast<std::size_t>(layer) * blocks_ + block) * stamps + stamp];
  }
  void print_phase(int phase, const char* name) const {
    double sum = 0;
    double least = 1e9;
    double most = -1e9;
    int count = 0;
    for (int layer = first_layer; layer < layers; ++layer) {
      double layer_least = 1e9;
      double layer_most = -1e9;
      for (int block = 0; block < std::min(blocks_, output_tiles); ++block) {
        const double us =
            static_cast<double>(at(layer, block, phase + 1) - at(layer, block, phase)) / unit_;
        sum += us;
        ++count;
        layer_least = std::min(layer_least, us);
        layer_most = std::max(layer_most, us);
      }
      least = std::min(least, layer_least);
      most = std::max(most, layer_most);
    }
    std::printf(" %s %.2f (%.2f-%.2f)", name, sum / count, least, most);
  }
  // On each multiprocessor, from a block's end until the next launch's block starts and goes on.
  void print_between() const {
    double start = 0;
    double go = 0;
    double step = 0;
    int count = 0;
    int doubled = 0;
    for (int layer = first_layer; layer + 1 < layers; ++layer) {
      std::map<long long, int> block_at;
      for (int block = 0; block < blocks_; ++block) {
        if (!block_at.emplace(at(layer, block, place_stamp), block).second) ++doubled;
      }
      for (int block = 0; block < blocks_; ++block) {
        const auto before = block_at.find(at(layer + 1, block, place_stamp));
        if (before == block_at.end()) continue;
        const long long end = at(layer, before->second, phases);
        start += static_cast<double>(at(layer + 1, block, 0) - end) / unit_;
        go += static_cast<double>(at(layer + 1, block, 1) - end) / unit_;
        step += static_cast<double>(at(layer + 1, block, 1) - at(layer, before->second, 1)) / unit_;
        ++count;
      }
    }
    if (count == 0) return;
    std::printf("; end to next start %.2f, to next go %.2f, go to go %.2f, %d doubled\n",
                start / count, go / count, step / count, doubled);
  }

 private:
  int blocks_;
  std::vector<long long> all_;
  double unit_;
};

}  // namespace

void print_phases(Runs& runs, const Run& run, double cycles_per_us) {
  const Stamped stamped(runs, runs.stamped_chain(run), cycles_per_us);
  std::printf("    phases, us:");
  for (int i = 0; i < phases; ++i) {
    const bool whole = run.design == Design::whole;
    stamped.print_phase(i, whole ? whole_names[i] : split_names[i]);
  }
  stamped.print_between();
}

}  // namespace motley::bench::HALF_STEP_NAMESPACE
