#include "engine/recurrent_mixers.h"

#include <cmath>
#include <utility>

#include "model/grouped_attention.h"

namespace motley::engine_tests {
namespace {

using model::Builder;
using model::GroupedAttention;
using ops::ValueId;

constexpr std::int64_t taps = 4;

model::Vector constant(std::int64_t count, float number, model::WeightSource& source) {
  const std::vector<float> numbers(static_cast<std::size_t>(count), number);
  return model::Vector::create(numbers, source.memory().device, source.memory().uploader).value();
}

// What both have in common: the maps of attention, used otherwise.
class Recurrent : public model::Mixer {
 public:
  explicit Recurrent(GroupedAttention attention) : parts_(std::move(attention)) {}

  std::vector<model::MapGroup> maps() const override { return parts_.maps(); }
  std::vector<const model::Vector*> vectors() const override { return parts_.vectors(); }
  model::TokenCaches kept_per_token() const override { return {}; }
  kernels::AttentionShape attention_shape(std::int64_t) const override { return {}; }
  Cost cost(const model::EqualSequences&) const override { return {}; }

 protected:
  std::int32_t layer() const { return parts_.q.site.layer; }

  GroupedAttention parts_;
};

// The average of the last queries, for each channel.
class Average final : public Recurrent {
 public:
  Average(GroupedAttention attention, model::WeightSource& source)
      : Recurrent(std::move(attention)),
        filter_(constant(taps * parts_.q.out(), 1.0F / taps, source)) {}

  model::StateShape kept_per_sequence() const override {
    return {.channels = parts_.q.out(), .taps = taps};
  }
  ValueId append(ValueId x, Builder& pass) const override {
    const ValueId q = pass.linear(parts_.q, x, "q");
    const ValueId mean = pass.value("mean", DType::f32, parts_.q.out());
    pass.list().append({.reads = {q}, .writes = {mean}}, model::ConvolveOp{.layer = layer(),
                                                                           .weight = filter_,
                                                                           .bias = no_bias_,
                                                                           .silu = false,
                                                                           .x = q,
                                                                           .out = mean});
    const ValueId rounded = pass.value("attended", pass.activations(), parts_.o.in());
    pass.round(mean, rounded);
    return pass.sum_over_ranks(pass.linear(parts_.o, rounded, "average"));
  }

 private:
  model::Vector filter_, no_bias_;
};

// A gated delta net with a head for each KV head. Queries are the first columns of q, then come the
// numbers of the gates; what is left of q goes on as it is.
class DeltaNet final : public Recurrent {
 public:
  DeltaNet(GroupedAttention attention, model::WeightSource& source)
      : Recurrent(std::move(attention)),
        filter_(constant(taps * channels(), 0.4F, source)),
        decay_(constant(heads(), -0.3F, source)),
        decay_bias_(constant(heads(), 0.1F, source)) {
    // Of length one.
    unit_.weight = constant(width(), 1 / std::sqrt(static_cast<float>(width())), source);
  }

  model::StateShape kept_per_sequence() const override {
    return {.key_heads = heads(),
            .value_heads = heads(),
            .key_width = width(),
            .value_width = width(),
            .corrects = true,
            .channels = channels(),
            .taps = taps};
  }
  ValueId append(ValueId x, Builder& pass) const override;

 private:
  std::int64_t heads() const { return parts_.kv_heads; }
  std::int64_t width() const { return parts_.sizes.head_dim; }
  std::int64_t channels() const { return heads() * width(); }

  model::Vector filter_, no_bias_, decay_, decay_bias_;
  model::Norm unit_;
};

ValueId DeltaNet::append(ValueId x, Builder& pass) const {
  ops::OpList& list = pass.list();
  const auto qkv = pass.linears({&parts_.q, &parts_.k, &parts_.v}, x, "qkv").each;
  const ValueId q = list.split_heads(list.columns(qkv[0], 0, channels()), heads());
  const ValueId a = list.columns(qkv[0], channels(), heads());
  const ValueId b = list.columns(qkv[0], channels() + heads(), heads());
  const ValueId k = list.split_heads(qkv[1], heads());
  pass.norm_in_place(unit_, q);
  pass.norm_in_place(unit_, k);
  const ValueId v = pass.value("v", DType::f32, channels());
  list.append({.reads = {qkv[2]}, .writes = {v}}, model::ConvolveOp{.layer = layer(),
                                                                    .weight = filter_,
                                                                    .bias = no_bias_,
                                                                    .silu = true,
                                                                    .x = qkv[2],
                                                                    .out = v});
  const ValueId g = pass.value("g", DType::f32, heads());
  const ValueId beta = pass.value("beta", DType::f32, heads());
  list.append({.reads = {a, b}, .writes = {g, beta}},
              model::DeltaGatesOp{
                  .decay = decay_, .bias = decay_bias_, .a = a, .b = b, .g = g, .beta = beta});
  const ValueId recurred = pass.value("recurred", DType::f32, channels());
  const ValueId v_heads = list.split_heads(v, heads());
  const ValueId out = list.split_heads(recurred, heads());
  list.append(
      {.reads = {q, k, v_heads, g, beta}, .writes = {out}},
      model::RecurOp{
          .layer = layer(), .q = q, .k = k, .v = v_heads, .g = g, .beta = beta, .out = out});
  const ValueId attended = pass.value("attended", pass.activations(), parts_.o.in());
  pass.round(recurred, list.columns(attended, 0, channels()));
  const std::int64_t rest = parts_.o.in() - channels();
  pass.round(list.columns(qkv[0], channels(), rest), list.columns(attended, channels(), rest));
  return pass.sum_over_ranks(pass.linear(parts_.o, attended, "delta_net"));
}

}  // namespace

Result<std::unique_ptr<model::Mixer>> load_recurrent_mixer(model::WeightSource& source,
                                                           const model::Config& config,
                                                           std::int32_t layer) {
  if (layer > 1) return std::unique_ptr<model::Mixer>();
  MOTLEY_TRY(GroupedAttention parts,
             model::load_attention(source, config,
                                   std::get<model::GroupedConfig>(config.mixer(layer)), layer));
  if (layer == 1)
    return std::unique_ptr<model::Mixer>(std::make_unique<Average>(std::move(parts), source));
  return std::unique_ptr<model::Mixer>(std::make_unique<DeltaNet>(std::move(parts), source));
}

}  // namespace motley::engine_tests
