#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/json/json.h"
#include "lora/files/load.h"
#include "lora/pages/pool.h"
#include "model/model.h"
#include "runner/other_ranks.h"
#include "runner/runner.h"
#include "runner/score.h"
#include "tensor/device/metered_device.h"

// A model of tests/goldens, ready to score, with the adapters that a test asks for.
//
// What no test changes is read once for a process: on the CPU and of one rank the weights and the
// parsed adapters of the models that were used last are kept and shared. Pages, adapters in pools
// and steps' memory are each GoldenModel's own.
namespace motley::score_tests {

const std::filesystem::path& goldens_folder();
std::vector<std::string> golden_models();
// A model's golden.json.
json::Value read_golden(const std::string& model);

class GoldenModel {
 public:
  struct Options {
    bool exact = true;
    // The goldens' own answers. Without it activations are quantised where the checkpoint says so.
    bool exact_inputs = true;
    int threads = 2;
    std::int64_t max_rows = 64;
    std::int64_t max_tokens = 128;  // of a sequence
    std::int64_t pages = 256;
    std::string experts_backend = {};   // "": the selected one
    std::filesystem::path folder = {};  // other weights than the golden's own
    tensor::DeviceChoice device = {.kind = tensor::DeviceChoice::Kind::cpu};
    bool kv_codes = false;
    bool graphs = true;
    bool batch_invariant = false;
    bool fusion = true;
    int adapter_rank = 64;
    // With more than one, ranks are threads, each with as many as `threads`; with GPUs, each has
    // one of them, the first the device's.
    int ranks = 1;
    int expert_groups = 1;  // of ranks, over which experts are dealt
    std::vector<int> gpus = {};
    dist::RanksOver over = dist::RanksOver::automatic;
    Duration max_wait = std::chrono::seconds(60);
    std::shared_ptr<dist::LaunchGate> gate = {};  // of several engines
    // The (token, expert) pairs of a step from which ranks share products with adapters' A.
    std::optional<std::int64_t> shared_shrinks_from = {};
    model::MixerLoader mixer = {};  // in place of the golden's own
    // What a rank's model sees instead of its group; empty: the group.
    std::function<dist::Communicator*(dist::Communicator&)> wrap = {};
  };

  GoldenModel(const std::string& name, const Options& options);

  const json::Value& golden() const { return *golden_; }
  const model::Model& model() const { return *model_; }
  runner::Runner& runner() { return *runner_; }
  tensor::MeteredDevice& device() { return *device_; }
  lora::Pool& pool() { return *pool_; }
  // The ranks beside the first; null: there are none. Their pools and runners are those of the last
  // that made them.
  runner::OtherRanks* others() { return others_.get(); }
  // Adapters that no mix names any more are idle from here on.
  void forget_adapters() { handles_.clear(); }
  const std::filesystem::path& folder() const { return folder_; }

  // The mix that a case names: its adapter, its adapters, or none.
  lora::Mix mix_of(const json::Value& golden_case);
  lora::Mix mix(const std::vector<lora::ScaledAdapter>& adapters, const json::Value& load = {});

  // A case's lines, with the reference in place.
  std::vector<runner::ScoreLine> lines_of(const json::Value& golden_case) const;
  // A file of such lines in the golden's folder.
  std::vector<runner::ScoreLine> read_lines(const std::string& file) const;

  std::vector<runner::ScoreResult> score(const std::vector<runner::ScoreLine>& lines,
                                         const std::vector<lora::Mix>& mixes, int top = 5);

 private:
  // Shared by GoldenModels of the same weights.
  struct Weights {
    std::shared_ptr<tensor::MeteredDevice> device;  // outlives the model
    std::shared_ptr<const model::Model> model;
    std::map<std::string, lora::Adapter> adapters;  // by name and the way it is read
  };
  static std::shared_ptr<Weights> load_weights(const std::filesystem::path& files,
                                               const Options& options,
                                               const model::LoadOptions& load);
  // Those with this key that were used last; made by make() if they are not kept.
  static std::shared_ptr<Weights> recent_weights(const std::string& key,
                                                 FunctionRef<std::shared_ptr<Weights>()> make);
  void load_other_ranks(const std::filesystem::path& files, const Options& options,
                        model::LoadOptions& load);
  lora::Handle adapter(const std::string& name, const json::Value& load);

  std::filesystem::path folder_;
  std::shared_ptr<const json::Value> golden_;
  std::shared_ptr<tensor::MeteredDevice> device_;
  std::unique_ptr<runner::OtherRanks> others_;  // null: one rank
  std::shared_ptr<Weights> weights_;
  std::shared_ptr<const model::Model> model_;
  std::unique_ptr<lora::Pool> pool_;
  std::unique_ptr<runner::Runner> runner_;
  std::map<std::string, lora::Handle> handles_;
};

// A field that must be there.
const json::Value& at(const json::Value& object, std::string_view key);
const json::Array& cases_of(const json::Value& golden);
// What a case says of how its adapter is read.
lora::LoadOptions load_options(const json::Value& load);

}  // namespace motley::score_tests
