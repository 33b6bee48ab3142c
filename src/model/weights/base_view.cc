#include "model/weights/base_view.h"

#include <algorithm>
#include <mutex>

#include "base/check.h"
#include "model/model.h"

namespace motley::model {
namespace {

class ModelBaseView final : public lora::BaseView {
 public:
  ModelBaseView(const Model& model, const quant::Config& quantization)
      : quantization_(quantization),
        config_(&model.config()),
        shard_(&model.shard()),
        checkpoint_(model.checkpoint()),
        names_(checkpoint_ == nullptr ? StoredNames() : StoredNames(*checkpoint_)) {
    const auto add = [this](const Linear& linear) {
      add_weights({.site = linear.site,
                   .in = linear.size.in,
                   .out = linear.size.out,
                   .row_parts = row_parts(linear.site)},
                  std::span(&linear.host_weight(), 1));
      add_shard(linear);
    };
    const Linear& embedding = model.embedding();
    // An embedding maps a token id to a hidden state.
    specs_.push_back({.site = embedding.site, .in = embedding.size.out, .out = embedding.size.in});
    weights_[embedding.site] = std::span(&embedding.host_weight(), 1);
    add(model.head());
    for_each_block(model.layers(), [&](const Block& block) {
      for (const MapGroup& group : block.maps())
        for (const Linear* const map : group.maps) add(*map);
    });
    for_each_moe(model.layers(), [&](const MoeBlock& block, std::size_t) { add_experts(block); });
    std::ranges::sort(specs_, {}, &lora::SiteSpec::site);
  }

  std::span<const lora::SiteSpec> sites() const override { return specs_; }
  std::span<const lora::SiteShard> shards() const override { return shards_; }
  bool experts_transposed() const override { return config_->naming.experts_transposed; }
  bool gate_up_interleaved() const override { return config_->naming.experts_transposed; }
  lora::BlockNames block_names() const override {
    const Naming& naming = config_->naming;
    return {
        .moe = naming.moe_block, .router = naming.router, .shared_expert = naming.shared_expert};
  }
  std::optional<tensor::ConstTensor> file_tensor(std::string_view name) const override {
    if (checkpoint_ == nullptr) return std::nullopt;
    // Adapter files may call it as another form of the family does.
    const auto* item = checkpoint_->find(names_.stored(StoredNames::plain(name)));
    if (item == nullptr) return std::nullopt;
    return item->tensor();
  }
  bool tied_embeddings() const override { return config_->tied_embeddings; }

  void rows(lora::Site site, int expert, std::int64_t begin, std::int64_t end,
            float* out) const override {
    if (const auto read_again = cut_.find(site); read_again != cut_.end())
      return whole_rows(*read_again->second, begin, end, out);
    const auto at = weights_.find(site);
    MOTLEY_CHECK(at != weights_.end(), "rows of a site that the model has");
    const std::int64_t first =
        is_expert(site.projection) && shard_->is_cut() ? shard_->experts.experts.begin : 0;
    const std::int64_t index = expert - first;
    MOTLEY_CHECK(index >= 0 && index < std::ssize(at->second), "an expert that this rank has");
    const quant::Weight& weight = at->second[static_cast<std::size_t>(index)];
    MOTLEY_CHECK(end <= weight.out(), "rows that this rank has");
    weight.decode(begin, end, out);
  }

 private:
  void add_weights(const lora::SiteSpec& spec, std::span<const quant::Weight> weights) {
    specs_.push_back(spec);
    weights_[spec.site] = weights;
  }

  std::array<std::int64_t, 3> row_parts(lora::Site site) const {
    if (site.projection != lora::Projection::in_qkv) return {};
    const auto& net = std::get<DeltaNetConfig>(config_->mixer(site.layer));
    return {net.keys(), net.keys(), net.values()};
  }

  void add_shard(const Linear& linear) {
    if (linear.cut.empty()) return;
    const bool has_whole = linear.stored.view().data != nullptr;
    if (!has_whole && checkpoint_ != nullptr) cut_[linear.site] = &linear;
    shards_.push_back({.site = linear.site,
                       .out = linear.cut.rows.value_or(dist::Ranges(0, linear.size.out)),
                       .in = linear.cut.columns.value_or(dist::Range{0, linear.size.in}),
                       .has_biases = !linear.cut.columns || shard_->is_first()});
  }

  // Of a quantised weight of which this rank has a part: the whole is read again. Rows are asked
  // for in order, so the last weight is kept until another is.
  void whole_rows(const Linear& linear, std::int64_t begin, std::int64_t end, float* out) const {
    const std::lock_guard held(lock_);
    if (read_ != &linear) {
      WeightSource source(*checkpoint_, quantization_, {.host = host_, .device = host_});
      auto whole = source.matrix(linear.module, linear.size);
      // It was read when the model was loaded.
      MOTLEY_CHECK(whole.ok(), whole.error().message());
      whole_ = *std::move(whole);
      read_ = &linear;
    }
    whole_.decode(begin, end, out);
    if (end == linear.size.out) {
      whole_ = {};
      read_ = nullptr;
    }
  }

  void add_expert_shards(std::int32_t layer) {
    const dist::Range hidden{0, config_->hidden};
    const dist::Range& columns = shard_->expert_columns;
    const dist::Range& experts = shard_->experts.experts;
    for (const lora::Projection each : {lora::Projection::expert_gate, lora::Projection::expert_up})
      shards_.push_back({.site = {layer, each}, .out = columns, .in = hidden, .experts = experts});
    shards_.push_back({.site = {layer, lora::Projection::expert_down},
                       .out = hidden,
                       .in = columns,
                       .experts = experts,
                       .has_biases = shard_->experts.rank == 0});
  }

  void add_experts(const MoeBlock& block) {
    const std::int32_t layer = block.router.site.layer;
    // Whole and of all experts, also where a rank has parts or only some.
    const moe::ExpertWeights& experts = *block.experts;
    const auto add = [&](lora::Projection projection, std::int64_t in, std::int64_t out,
                         std::span<const quant::Weight> weights) {
      add_weights({.site = {layer, projection},
                   .in = in,
                   .out = out,
                   .experts = config_->moe.router.experts},
                  weights);
    };
    const std::int64_t width = config_->moe.intermediate;
    add(lora::Projection::expert_gate, config_->hidden, width, experts.gate);
    add(lora::Projection::expert_up, config_->hidden, width, experts.up);
    add(lora::Projection::expert_down, width, config_->hidden, experts.down);
    if (shard_->is_cut()) add_expert_shards(layer);
  }

  quant::Config quantization_;
  const Config* config_;
  const Shard* shard_;
  const tensor::Checkpoint* checkpoint_;
  StoredNames names_;
  std::vector<lora::SiteSpec> specs_;
  std::vector<lora::SiteShard> shards_;
  std::map<lora::Site, std::span<const quant::Weight>> weights_;
  std::map<lora::Site, const Linear*> cut_;  // whose whole weight is only in the files

  mutable std::mutex lock_;
  mutable tensor::CpuDevice host_{{.threads = 1}};  // of the weight that is read again
  mutable quant::Weight whole_;
  mutable const Linear* read_ = nullptr;
};

}  // namespace

std::unique_ptr<lora::BaseView> make_base_view(const Model& model,
                                               const quant::Config& quantization) {
  return std::make_unique<ModelBaseView>(model, quantization);
}

}  // namespace motley::model
