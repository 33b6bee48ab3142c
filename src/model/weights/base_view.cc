#include "model/weights/base_view.h"

#include <algorithm>

#include "base/check.h"
#include "model/model.h"

namespace motley::model {
namespace {

class ModelBaseView final : public lora::BaseView {
 public:
  explicit ModelBaseView(const Model& model)
      : config_(&model.config()), checkpoint_(model.checkpoint()) {
    const auto add = [this](const Linear& linear) {
      add_weights(linear.site, std::span(&linear.host_weight(), 1), 0);
    };
    const Linear& embedding = model.embedding();
    // An embedding maps a token id to a hidden state.
    specs_.push_back({.site = embedding.site, .in = embedding.out(), .out = embedding.in()});
    weights_[embedding.site] = std::span(&embedding.host_weight(), 1);
    add(model.head());
    for (const Layer& layer : model.layers()) {
      std::visit([&](const auto& block) { add_block(block, add); }, layer.attention);
      std::visit([&](const auto& block) { add_block(block, add); }, layer.ffn);
    }
    std::ranges::sort(specs_, {}, &lora::SiteSpec::site);
  }

  std::span<const lora::SiteSpec> sites() const override { return specs_; }
  bool experts_transposed() const override { return config_->naming.experts_transposed; }
  bool gate_up_interleaved() const override { return config_->naming.experts_transposed; }
  lora::BlockNames block_names() const override {
    const Naming& naming = config_->naming;
    return {
        .moe = naming.moe_block, .router = naming.router, .shared_expert = naming.shared_expert};
  }
  std::optional<tensor::ConstTensor> file_tensor(std::string_view name) const override {
    const auto* item = checkpoint_ == nullptr ? nullptr : checkpoint_->find(name);
    if (item == nullptr) return std::nullopt;
    return item->tensor();
  }
  bool tied_embeddings() const override { return config_->tied_embeddings; }

  void rows(lora::Site site, int expert, std::int64_t begin, std::int64_t end,
            float* out) const override {
    const auto at = weights_.find(site);
    MOTLEY_CHECK(at != weights_.end(), "rows of a site that the model has");
    at->second[static_cast<std::size_t>(expert)].decode(begin, end, out);
  }

 private:
  void add_weights(lora::Site site, std::span<const quant::Weight> weights, int experts) {
    specs_.push_back({.site = site,
                      .in = weights.front().in(),
                      .out = weights.front().out(),
                      .experts = experts});
    weights_[site] = weights;
  }

  template <class Add>
  void add_block(const GroupedAttention& block, Add add) {
    for (const Linear* each : {&block.q, &block.k, &block.v, &block.o}) add(*each);
  }

  template <class Add>
  void add_block(const LatentAttention& block, Add add) {
    for (const auto* each : {&block.q, &block.q_a, &block.q_b}) {
      if (*each) add(**each);
    }
    for (const Linear* each : {&block.kv_a, &block.kv_b, &block.o}) add(*each);
  }

  template <class Add>
  void add_block(const DenseBlock& block, Add add) {
    for (const Linear* each : {&block.gate, &block.up, &block.down}) add(*each);
  }

  template <class Add>
  void add_block(const MoeBlock& block, Add add) {
    add(block.router);
    const std::int32_t layer = block.router.site.layer;
    const moe::ExpertWeights& experts = *block.experts;
    add_weights({layer, lora::Projection::expert_gate}, experts.gate, experts.experts);
    add_weights({layer, lora::Projection::expert_up}, experts.up, experts.experts);
    add_weights({layer, lora::Projection::expert_down}, experts.down, experts.experts);
    if (block.shared) add_block(*block.shared, add);
    if (block.shared_gate) add(*block.shared_gate);
  }

  const Config* config_;
  const tensor::Checkpoint* checkpoint_;
  std::vector<lora::SiteSpec> specs_;
  std::map<lora::Site, std::span<const quant::Weight>> weights_;
};

}  // namespace

std::unique_ptr<lora::BaseView> make_base_view(const Model& model) {
  return std::make_unique<ModelBaseView>(model);
}

}  // namespace motley::model
