#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "base/system/clock.h"
#include "dist/launch_gate.h"
#include "kernels/elementary.h"
#include "lora/apply/step_table.h"
#include "lora/pages/pool.h"
#include "model/model.h"
#include "moe/backend.h"
#include "runner/background_copies.h"
#include "runner/kv_memory.h"
#include "runner/state_memory.h"
#include "runner/step_layout.h"
#include "tensor/arena.h"
#include "tensor/device/device.h"

namespace motley::runner {

// Receives logits [n, vocabulary] (f32) of some rows of a step, in device memory; rows[i]
// identifies row i. They are valid in the order of the runner's stream until the sink returns: work
// that it queues on that stream may read them.
using LogitsSink =
    FunctionRef<Result<void>(const tensor::Tensor& logits, std::span<const LogitRow> rows)>;

class OtherRanks;

// Runs steps of any mix of chunks. Owns keys and values and all working memory of a step. After
// warm-up a step allocates nothing, neither on the heap nor on the device.
class Runner {
 public:
  struct Options {
    std::int64_t max_rows = 512;       // of a step, all chunks together
    std::int64_t max_sequences = 256;  // of a step
    std::int64_t max_tokens = 4096;    // of a sequence
    std::int64_t pages = 0;            // of keys and values, at most
    // Bytes of device memory to leave free: if necessary there are fewer pages. Nothing: there are
    // as many pages as requested.
    std::optional<std::uint64_t> spare = {};
    // For models whose layers keep states: sequences that have one, at most max_sequences, and
    // snapshots.
    std::int64_t state_slots = 0;
    std::int64_t snapshots = 0;
    std::int64_t host_snapshots = 0;  // more of them, in the host's memory
    std::int64_t logit_rows = 32;     // rows that get logits at a time
    // The pool of the steps' adapters; null: there are never any. On a GPU the pool is required and
    // must keep directories; on the CPU adapters may be in any pool.
    lora::Pool* adapters = nullptr;
    // The largest ranks for which a GPU's steps have memory: of one adapter, and of all adapters of
    // a mix. On the CPU ranks are not limited.
    int adapter_rank = 256;
    int mix_rank = 512;
    bool keep_choices = false;  // keeps the experts that rows of the last step chose: see choices()
    bool graphs = true;  // on a GPU, steps of single tokens are captured once and then launched
    // Whether a step without a graph is captured after it has run. If not, only warm_up() and
    // capture_ahead() capture, so that no step takes longer.
    bool capture_in_steps = true;
    // The other ranks, whose runners have the same options; null: there are none, or this is one of
    // them. Must outlive the runner.
    OtherRanks* others = nullptr;
  };

  // Model, device and pool must outlive the runner.
  static Result<std::unique_ptr<Runner>> create(const model::Model& model, tensor::Device& device,
                                                const Options& options);
  // Waits for queued work.
  ~Runner();

  KvMemory& kv() { return kv_; }
  const StateMemory& states() const { return states_; }
  const Options& options() const { return options_; }
  tensor::Device& device() { return *device_; }
  tensor::Stream& stream() { return *stream_; }
  // For ops that sinks apply to their logits.
  ops::Context context() const {
    const kernels::ElementaryTable& kernels = model_->kernels();
    return {.kernels = &kernels, .stream = kernels.on(stream_->handle())};
  }

  // Checks that steps have memory for a mix; call it before the mix is in a chunk. The error names
  // the adapter, its rank and the limit.
  Result<void> takes(const lora::Mix& mix) const;
  // The limits that takes() checks; nothing if there are none.
  const std::optional<moe::DeltaLimits>& mix_limits() const { return mix_limits_; }

  // Runs a step. Every chunk has at least one token and a mix that takes() accepts; together they
  // fit the options. No page that a chunk writes is in another chunk's list. The sink gets logits
  // in the order of rows. An error is either the sink's, or final for the device; with other ranks
  // it is final.
  Result<void> step(std::span<const Chunk> chunks, LogitsSink sink);

  // Waits for the queued steps. An error is final.
  Result<void> synchronize();
  // Of several ranks on GPUs: whether the last step is done. Does not wait.
  Result<bool> step_is_done() const;

  // What a step launches, in order. On a GPU the step is captured and does not run.
  struct Trace {
    std::vector<model::TracedLaunch> launches;
    std::int64_t captured = 0;  // on a GPU: kernels, copies and fills of the captured step
  };
  Result<Trace> trace(std::span<const Chunk> chunks);

  // Captures steps of single tokens of every size, without adapters and with adapters at any site,
  // so that no capture delays a request. Does nothing if steps are not captured.
  Result<void> warm_up();

  // Announces adapters that change these sites.
  void foresee(const lora::SiteSet& sites);
  // Captures one step that foreseen adapters may need and that is not yet captured for exactly
  // their sites; false: there is none. Launches nothing, so it may run while the GPU computes a
  // step.
  Result<bool> capture_ahead();
  // Whether the last step that should have been a graph launch had no graph, and still has none.
  bool misses_graph() const { return missed_.has_value(); }
  // The duration of the last capture.
  Duration capture_time() const { return capture_time_; }

  // Copies page `from` of every layer to page `to`, before all later steps.
  Result<void> copy_page(std::int32_t from, std::int32_t to);

  // Copies of states (StateMemory), before all later steps.
  Result<void> copy_state(std::int32_t from, std::int32_t to);
  Result<void> save_state(std::int32_t slot, std::int32_t place);
  Result<void> restore_state(std::int32_t place, std::int32_t slot);
  // Copies next to later steps, on every rank: of a snapshot to a place in the host's memory, and
  // from there to a slot. They end in the order of these calls.
  Result<void> offload_state(std::int32_t place, std::int32_t host_place);
  Result<void> load_state(std::int32_t host_place, std::int32_t slot);
  // How many of them have ended, on all ranks; does not wait.
  Result<std::uint64_t> state_copies_ended();
  Result<void> finish_state_copies();

  // Call when no step follows for now: adapters of the last one can then be unloaded.
  Result<void> release_adapters();

  // [layers, rows, top_k] in i32, in device memory: the experts that the rows of the last step
  // chose, those of padding last. Valid after its work, and before that in the order of the stream.
  // Only with keep_choices, and only for layers with experts.
  const tensor::Tensor& choices() const { return choices_; }
  const model::Config& config() const { return model_->config(); }

  // The number of captured steps, and of steps that ran as a graph.
  std::size_t graphs() const { return graphs_.size(); }
  std::uint64_t graph_launches() const { return graph_launches_; }

 private:
  // The graph signature: everything that a captured step depends on, except numbers at fixed
  // addresses.
  struct GraphKey {
    std::int64_t rows = 0;
    std::optional<lora::AdapterClass> adapters = {};  // nothing: base only

    friend auto operator<=>(const GraphKey&, const GraphKey&) = default;
  };
  // Has launches for adapters at these sites.
  struct CapturedStep {
    std::unique_ptr<tensor::Graph> graph;
    lora::SiteSet sites;
  };

  Runner(const model::Model& model, tensor::Device& device, const Options& options,
         StepLayout layout, model::Model::Workspace workspace, tensor::Buffer memory);

  // How the ranks' launches of a step go through the gate.
  dist::LaunchGate::Way way_of(std::span<const Chunk> chunks) const;
  // This rank's part of a step; only rank 0 has logits for its sink.
  Result<void> step_on_rank(std::span<const Chunk> chunks, LogitsSink sink);
  // Warms up this rank, beside the others.
  Result<void> warm_up_rank();
  // Finds out whether steps may share products with adapters' A, for this rank and the others.
  void share_shrinks();
  // Calls work with the other ranks' runners, if there are any, on this thread.
  Result<void> for_others(FunctionRef<Result<void>(Runner& runner)> work) const;
  // The error of the ranks, if there are several and one has failed.
  Result<void> ranks_status() const;
  // The layout of a step.
  struct LaidOut {
    bool padded = false;  // to a graph's size
    std::optional<GraphKey> key;
  };
  Result<LaidOut> lay_out(std::span<const Chunk> chunks);
  // Traces work that is no op of the model.
  void trace_other(std::string_view name, FunctionRef<void()> work);
  bool on_gpu() const { return device_->id().kind == tensor::DeviceKind::cuda; }
  lora::RowMixes mixes(const std::int32_t* labels) const;
  // Allocates what keeps the choices of a step's rows.
  Result<void> make_choices();
  // Makes choices() that of the step as laid out.
  void view_choices();
  // Allocates KV memory, after everything else.
  Result<void> make_pages();
  // Rows of the largest step of single tokens that is padded to a graph's size; 0: none is padded.
  std::int64_t max_padded_rows() const;
  // `decodes`: a step of single tokens.
  bool is_padded(bool decodes, std::int64_t rows) const;
  // Hidden states and logits of such a step; the same addresses for every step of its size.
  struct DecodeMemory {
    model::HiddenStates hidden;
    tensor::Tensor logits;
  };
  DecodeMemory take_decode_memory();
  // The graph of a step whose adapters have these sites; null if it is not captured.
  const CapturedStep* find_graph(const GraphKey& key, const lora::SiteSet& sites) const;
  // Queues the step as laid out; with a key, as a graph launch if there is one. Returns its logits.
  Result<tensor::Tensor> decode(const std::optional<GraphKey>& key);
  const lora::SiteSet& foreseen() const;
  // Every size with every class of adapters, the smallest size first.
  std::vector<GraphKey> adapted_keys() const;
  // Captures a step of that key, with launches for these sites. Overwrites the layout.
  Result<void> capture(const GraphKey& key, const lora::SiteSet& sites);
  // The first key without a graph that foreseen adapters may need.
  std::optional<GraphKey> missing_graph() const;
  // Launches a step whose rows all get logits: hidden states, then logits.
  void launch_decode(const DecodeMemory& memory);
  void launch_forward(const model::HiddenStates& hidden);
  Result<void> emit_logits(const model::HiddenStates& hidden, LogitsSink sink);
  // Takes memory for the hidden states of this many rows.
  model::HiddenStates take_states(std::int64_t rows);

  const model::Model* model_;
  tensor::Device* device_;
  Options options_;
  std::optional<moe::DeltaLimits> mix_limits_;
  KvMemory kv_;
  StateMemory states_;
  BackgroundCopies state_copies_;
  std::unique_ptr<tensor::Stream> stream_;
  std::unique_ptr<tensor::Event> passed_;   // the last step's; null: one rank, or the CPU
  std::unique_ptr<lora::StepTable> table_;  // null: no adapters, or the CPU
  StepLayout layout_;
  model::Model::Workspace workspace_;
  ops::SharedShrinks shared_shrinks_;
  tensor::Arena arena_;  // a step's hidden states, rows that get logits, and logits
  tensor::Buffer choices_memory_;
  tensor::Tensor choices_;
  bool adapted_ = false;     // the current step has adapters
  lora::SiteSet all_sites_;  // of the model, for factors
  std::map<GraphKey, CapturedStep> graphs_;
  // The last key of a step that had no graph.
  std::optional<GraphKey> missed_;
  // The sites for which no graph is missing.
  std::optional<lora::SiteSet> complete_for_;
  bool is_warm_ = false;  // padded steps use no library's kernel that warm_up() has not used
  Duration capture_time_{};
  std::uint64_t graph_launches_ = 0;
};

}  // namespace motley::runner
