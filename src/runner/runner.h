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
#include "kernels/elementary.h"
#include "lora/apply/step_table.h"
#include "lora/pages/pool.h"
#include "model/model.h"
#include "moe/backend.h"
#include "runner/kv_memory.h"
#include "runner/step_layout.h"
#include "tensor/arena.h"
#include "tensor/device/device.h"

namespace motley::runner {

// Logits [n, vocabulary] (f32) of some rows of a step, in the device's memory; rows[i] says whose
// row i is. They are there in the order of the runner's stream, until the sink returns: what it
// queues on that stream may read them.
using LogitsSink =
    FunctionRef<Result<void>(const tensor::Tensor& logits, std::span<const LogitRow> rows)>;

// Runs steps: any mix of chunks at once. Owns keys and values and all memory that a step works in;
// after warm-up a step takes nothing from the heap, nor from the device.
class Runner {
 public:
  struct Options {
    std::int64_t max_rows = 512;       // of a step, all chunks together
    std::int64_t max_sequences = 256;  // of a step
    std::int64_t max_tokens = 4096;    // of one sequence
    std::int64_t pages = 0;            // of keys and values, at most
    // Bytes of the device that others will want: there are fewer pages where they would not leave
    // that much. Nothing: as many as were asked for, whatever is left.
    std::optional<std::uint64_t> spare = {};
    std::int64_t logit_rows = 32;  // that get logits at a time
    // Where adapters of steps lie; null: none ever comes. Needed on a GPU, where it must keep
    // directories; on the CPU adapters may be in any pool.
    lora::Pool* adapters = nullptr;
    // Ranks that a GPU's steps have room for: of one adapter, and of all adapters of one mix. On
    // the CPU there is room for any.
    int adapter_rank = 256;
    int mix_rank = 512;
    bool keep_choices = false;  // the experts that rows of the last step chose: see choices()
    bool graphs = true;  // on a GPU, steps of single tokens are captured once and launched again
    // Whether a step that has no graph yet is captured behind its work. Else only warm_up() and
    // capture_ahead() capture, so that no step takes longer by it.
    bool capture_in_steps = true;
  };

  // Model, device and pool must outlive the runner.
  static Result<std::unique_ptr<Runner>> create(const model::Model& model, tensor::Device& device,
                                                const Options& options);
  // Waits for what was queued.
  ~Runner();

  KvMemory& kv() { return kv_; }
  const Options& options() const { return options_; }
  tensor::Device& device() { return *device_; }
  tensor::Stream& stream() { return *stream_; }
  // For calls of sinks on their logits.
  ops::Context context() const {
    const kernels::ElementaryTable& kernels = model_->kernels();
    return {.kernels = &kernels, .stream = kernels.on(stream_->handle())};
  }

  // Whether steps have room for a mix: to be asked before it is in a chunk. The error names the
  // adapter, its rank and the bound.
  Result<void> takes(const lora::Mix& mix) const;
  // The bounds behind it; nothing where there is room for any.
  const std::optional<moe::DeltaLimits>& mix_limits() const { return mix_limits_; }

  // Every chunk has at least one token and a mix that takes() takes; together they fit the options.
  // No page that a chunk writes stands in another's list. Logits reach the sink in order of rows.
  // An error is the sink's, or the device's end.
  Result<void> step(std::span<const Chunk> chunks, LogitsSink sink);

  // What a step launches, in order. On a GPU it is captured, and nothing runs.
  struct Trace {
    std::vector<model::TracedLaunch> launches;
    std::int64_t captured = 0;  // on a GPU: kernels, copies and fills of the captured step
  };
  Result<Trace> trace(std::span<const Chunk> chunks);

  // Captures every size that steps of single tokens have, without adapters and with adapters at any
  // site, so that none is captured while a request waits. Does nothing where steps are not
  // captured.
  Result<void> warm_up();

  // Adapters that change these sites may come.
  void foresee(const lora::SiteSet& sites);
  // Captures one step that foreseen adapters may need and that has not been captured for their
  // sites and no others; false: there is none. Launches nothing, so it may run while the GPU
  // computes a step.
  Result<bool> capture_ahead();
  // Whether the last step that was to be launched as a graph had none, and it is missing still.
  bool misses_graph() const { return missed_.has_value(); }
  // How long the last capture took.
  Duration capture_time() const { return capture_time_; }

  // What page `from` holds of every layer, in page `to` too, for the steps from now on.
  Result<void> copy_page(std::int32_t from, std::int32_t to) {
    return kv_.copy_page(from, to, *stream_);
  }

  // No step follows for now: adapters that the last one used can be unloaded.
  Result<void> let_go() {
    return table_ == nullptr ? Result<void>() : table_->upload(lora::Batch(), *stream_);
  }

  // [layers, max_rows, top_k] in i32, in the device's memory: the experts that the rows of the last
  // step chose, behind its work. Only with keep_choices, and only layers that have experts.
  const tensor::Tensor& choices() const { return choices_; }

  // Captured steps that are kept, and steps that one of them ran.
  std::size_t graphs() const { return graphs_.size(); }
  std::uint64_t graph_launches() const { return graph_launches_; }

 private:
  // What a captured step depends on, beside the numbers in fixed places: its graph signature.
  struct GraphKey {
    std::int64_t rows = 0;
    std::optional<lora::AdapterClass> adapters = {};  // nothing: the base alone

    friend auto operator<=>(const GraphKey&, const GraphKey&) = default;
  };
  // With launches for adapters at these sites.
  struct CapturedStep {
    std::unique_ptr<tensor::Graph> graph;
    lora::SiteSet sites;
  };

  Runner(const model::Model& model, tensor::Device& device, const Options& options,
         StepLayout layout, model::Model::Workspace workspace, tensor::Buffer memory);

  // How a step of some chunks is laid out.
  struct LaidOut {
    bool padded = false;  // to a graph's size
    std::optional<GraphKey> key;
  };
  Result<LaidOut> lay_out(std::span<const Chunk> chunks);
  // What is no op of the model.
  void trace_other(std::string_view name, FunctionRef<void()> work);
  bool on_gpu() const { return device_->id().kind == tensor::DeviceKind::cuda; }
  lora::RowMixes mixes(const std::int32_t* labels) const;
  // Where all else of the runner stands.
  Result<void> make_pages();
  // Rows of the largest step of single tokens that is padded to a graph's size; 0: none is.
  std::int64_t max_padded_rows() const;
  // Hidden states and logits of such a step, where every one of its size has them.
  struct DecodeMemory {
    model::HiddenStates hidden;
    tensor::Tensor logits;
  };
  DecodeMemory take_decode_memory();
  // The graph of a step whose adapters have these sites; null where it has not been captured.
  const CapturedStep* find_graph(const GraphKey& key, const lora::SiteSet& sites) const;
  // Queues the step as laid out; with a key by its graph, if that is there. Its logits.
  Result<tensor::Tensor> decode(const std::optional<GraphKey>& key);
  const lora::SiteSet& foreseen() const;
  // Every size with every class of adapters, the smallest size first.
  std::vector<GraphKey> adapted_keys() const;
  // Captures any step of that key, with launches for these sites. What was laid out is lost.
  Result<void> capture(const GraphKey& key, const lora::SiteSet& sites);
  // The first key without a graph that foreseen adapters may need.
  std::optional<GraphKey> missing_graph() const;
  // Queues a step whose rows all get logits: hidden states, then logits.
  void queue_decode(const DecodeMemory& memory);
  void queue_forward(const model::HiddenStates& hidden);
  Result<void> emit_logits(const model::HiddenStates& hidden, LogitsSink sink);
  // Room for those of so many rows.
  model::HiddenStates take_states(std::int64_t rows);

  const model::Model* model_;
  tensor::Device* device_;
  Options options_;
  std::optional<moe::DeltaLimits> mix_limits_;
  KvMemory kv_;
  std::unique_ptr<tensor::Stream> stream_;
  std::unique_ptr<lora::StepTable> table_;  // null: no adapters, or the CPU
  StepLayout layout_;
  model::Model::Workspace workspace_;
  tensor::Arena arena_;  // a step's hidden states, rows that get logits, and logits
  tensor::Buffer choices_memory_;
  tensor::Tensor choices_;
  bool adapted_ = false;     // the step at hand has adapters
  lora::SiteSet all_sites_;  // of the model, for factors
  std::map<GraphKey, CapturedStep> graphs_;
  // The last key that a step had no graph for.
  std::optional<GraphKey> missed_;
  // The sites for which no graph is missing.
  std::optional<lora::SiteSet> complete_for_;
  Duration capture_time_{};
  std::uint64_t graph_launches_ = 0;
};

}  // namespace motley::runner
