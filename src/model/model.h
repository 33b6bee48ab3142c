#pragma once

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dist/communicator.h"
#include "kernels/tuning/tuning.h"
#include "lora/site.h"
#include "model/config/config.h"
#include "model/forward/forward.h"
#include "model/layer.h"
#include "model/rope_table.h"
#include "model/shard.h"
#include "model/step.h"
#include "model/weights/random_weights.h"
#include "ops/rope.h"
#include "tensor/device/block_allocator.h"
#include "tensor/device/cpu_device.h"
#include "tensor/device/device.h"
#include "tensor/safetensors/checkpoint.h"

namespace motley::model {

struct LoadOptions {
  bool exact = true;             // --compute f32: activations and sums in float32
  bool batch_invariant = false;  // ops::Context's
  std::optional<std::string> experts_backend;
  std::optional<DType> factors;  // of adapters; default: as activations
  bool kv_codes = false;         // keys and values are stored as codes of 8 bits (f8_e4m3)
  bool copy_weights = false;     // files are read into memory, not mapped
  bool exact_inputs = false;     // activations stay unquantised, whatever the checkpoint says
  bool fusion = true;            // false: every op runs by itself
  // The ranks that compute the model together, as this one sees them; it holds its shard only.
  // Null: one rank has it all. Must outlive the model.
  dist::Communicator* ranks = nullptr;
  // The number of equal groups of ranks over which experts are dealt; 1: all ranks cut each.
  int expert_groups = 1;
  // The open files of another rank's model, to be shared; null: they are opened.
  std::shared_ptr<const tensor::Checkpoint> checkpoint = {};
  // Thresholds of a GPU's kernels in front of the built-in ones; null: none.
  std::shared_ptr<const kernels::Tuning> tuning;
  // In place of mixers that the configuration asks for; may be empty.
  MixerLoader mixer;
  // Called with the bytes read so far and in all, while weights are read; may be empty.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
};

// A model's weights and its forward pass. Immutable after loading; the caller's Workspace has a
// step's memory, and the caller's pages have keys and values.
class Model {
 public:
  // The working memory of one step at a time.
  struct Workspace {
    tensor::Buffer memory;  // of both lists, one after the other
    std::unique_ptr<Forward> layers;
    std::unique_ptr<Forward> head;
    tensor::Buffer attention_memory;
    kernels::AttentionScratch attention{};  // of that memory
    moe::Workspaces experts;
    std::vector<TracedLaunch>* trace = nullptr;  // see Forward::Call
    ops::SharedShrinks shared_shrinks{};         // with the other ranks
  };

  // Reads a model folder. The device must outlive the model.
  static Result<std::unique_ptr<Model>> load(const std::filesystem::path& folder,
                                             tensor::Device& device, const LoadOptions& options);
  // A model of that shape with random weights (random_weights.h), for measurements.
  static Result<std::unique_ptr<Model>> random(Config config, RandomWeights::Experts experts,
                                               tensor::Device& device, const LoadOptions& options);

  const Config& config() const { return config_; }
  bool exact() const { return exact_; }
  bool batch_invariant() const { return batch_invariant_; }
  // Null: the built-in thresholds alone.
  const kernels::Tuning* tuning() const { return tuning_.get(); }
  DType activations() const { return exact_ ? DType::f32 : DType::bf16; }
  // The type of keys and values in KV memory: that of activations, or f8_e4m3.
  DType kv_type() const { return kv_codes_ ? DType::f8_e4m3 : activations(); }
  // In order of layers.
  const std::vector<TokenCaches>& token_caches() const { return token_caches_; }
  const std::vector<StateShape>& state_shapes() const { return state_shapes_; }
  // Whether some layer keeps a state for each sequence.
  bool keeps_states() const { return !std::ranges::all_of(state_shapes_, &StateShape::empty); }
  const Linear& embedding() const { return embedding_; }  // [vocabulary, hidden]
  const Linear& head() const { return head_; }
  const std::vector<Layer>& layers() const { return layers_; }
  // What there is to say of its quantisation beside the formats, in words; often nothing.
  const std::vector<std::string>& quantization_remarks() const { return quantization_remarks_; }
  // The files that it was loaded from; null for a random model.
  const tensor::Checkpoint* checkpoint() const { return checkpoint_.get(); }
  std::shared_ptr<const tensor::Checkpoint> shared_checkpoint() const { return checkpoint_; }
  // The part of the model that this rank holds, and the ranks; null: it is whole.
  const Shard& shard() const { return shard_; }
  dist::Communicator* ranks() const { return ranks_; }
  // The base model as adapters see it.
  const lora::BaseView& base_view() const { return *base_view_; }
  // The layout that adapter memory must use for expert factors.
  lora::Layout factor_layout() const;
  // Whether another rank's model computes the same rows in rank space of its experts' gate and up.
  bool shrinks_alike(const Model& other) const;
  // "layers 1-47: cpu_grouped", for the start log.
  std::string describe_backends() const;

  // Bounds of a step.
  struct StepLimits {
    std::int64_t rows = 0;
    std::int64_t sequences = 0;
    std::int64_t logit_rows = 0;  // that get logits at once
    std::int64_t positions = 0;   // in second form
    moe::DeltaLimits deltas{};
  };
  // A mixer that has a second form of its ops, on this device; null: none has.
  const Mixer* with_second_form() const;
  Result<Workspace> make_workspace(const StepLimits& limits) const;

  const kernels::ElementaryTable& kernels() const { return *kernels_; }

  // Both lists of ops: tokens to hidden states, hidden states to logits.
  const ops::OpList& layer_ops() const { return layer_ops_; }
  const ops::OpList& head_ops() const { return head_ops_; }

  // Computes the rows' hidden states after the last layer, into the caller's tensors.
  void forward(const Batch& batch, Workspace& workspace, StreamHandle stream,
               const HiddenStates& hidden) const;

  // Logits [n, vocabulary] (f32) from hidden states; the mixes are those of these rows. Overwrites
  // hidden.sum with the sum of both parts.
  void logits(const HiddenStates& hidden, const lora::RowMixes& mixes, Workspace& workspace,
              StreamHandle stream, const tensor::Tensor& logits) const;

 private:
  Model() = default;

  // Loads weights from random_, or else from checkpoint_ with that configuration.
  Result<void> load_weights(const quant::Config& quantization, std::string_view where,
                            tensor::Device& device, const LoadOptions& options);
  Result<void> load_layers(WeightSource& source, const LoadOptions& options, std::uint64_t bytes);
  Result<void> load_head(WeightSource& source);
  Cut vocabulary_part() const { return shard_.is_cut() ? Cut{.rows = shard_.vocabulary} : Cut{}; }
  Result<void> add_attention_scratch(std::int64_t sequences, Workspace& workspace) const;
  ops::Context context(StreamHandle stream) const {
    return {.kernels = kernels_.get(),
            .stream = kernels_->on(stream),
            .exact = exact_,
            .batch_invariant = batch_invariant_,
            .ranks = ranks_};
  }
  Result<void> make_rope_tables(quant::Uploader* uploader);
  void list_ops();

  Config config_;
  std::vector<std::string> quantization_remarks_;
  bool exact_ = true;
  bool batch_invariant_ = false;
  bool kv_codes_ = false;
  bool fuses_ = true;
  std::shared_ptr<const kernels::Tuning> tuning_;
  dist::Communicator* ranks_ = nullptr;
  Shard shard_;
  std::shared_ptr<const tensor::Checkpoint> checkpoint_;  // weights are views into it
  std::unique_ptr<RandomWeights> random_;                 // or into this
  tensor::Device* device_ = nullptr;
  // a GPU's: for weights that are converted before it gets them
  std::unique_ptr<tensor::CpuDevice> host_;
  std::unique_ptr<tensor::BlockAllocator> host_memory_;  // of converted weights
  std::shared_ptr<const kernels::ElementaryTable> kernels_;
  Linear embedding_;
  std::vector<Layer> layers_;
  Norm final_norm_;
  Linear head_;
  std::vector<RopeTable> rope_tables_;  // at fixed addresses once they are made
  std::vector<TokenCaches> token_caches_;
  std::vector<StateShape> state_shapes_;
  std::unique_ptr<lora::BaseView> base_view_;
  ops::OpList layer_ops_;
  ops::OpList head_ops_;
};

}  // namespace motley::model
