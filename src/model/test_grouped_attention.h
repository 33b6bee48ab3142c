#pragma once

#include <cmath>
#include <list>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/cat.h"
#include "lora/test_world.h"
#include "model/grouped_attention.h"

// Grouped attention by its definition, for tests on every device.
namespace motley::model::test {

using Row = std::vector<double>;

inline constexpr std::int32_t attention_layer = 1;

struct GroupedCase {
  std::string name;
  GroupedConfig sizes;
  std::int64_t hidden = 24;
};

// What layers of one model may differ in, each by itself and some together.
inline std::vector<GroupedCase> grouped_cases(std::int64_t width) {
  const GroupedConfig plain{.heads = 4,
                            .kv_heads = 2,
                            .head_dim = width,
                            .scale = 1.7 / std::sqrt(static_cast<double>(width)),
                            .rope = {.dims = width, .base = 100.0}};
  const auto with = [&](std::string name, auto change) {
    GroupedCase made{.name = std::move(name), .sizes = plain};
    change(made.sizes);
    // Norms of about 1.6 make queries and keys longer: scores stay of a size of some units.
    if (made.sizes.qk_norm == QkNorm::per_head) made.sizes.scale /= 6;
    return made;
  };
  return {
      with("plain", [](GroupedConfig&) {}),
      with("not_rotated", [](GroupedConfig& sizes) { sizes.rope = {}; }),
      with("rotated_in_part", [](GroupedConfig& sizes) { sizes.rope.dims /= 4; }),
      with("gated", [](GroupedConfig& sizes) { sizes.gated = true; }),
      with("like_qwen3_5",
           [](GroupedConfig& sizes) {
             sizes.gated = true;
             sizes.qk_norm = QkNorm::per_head;
             sizes.rope.dims /= 4;
           }),
      with("window_and_sinks",
           [](GroupedConfig& sizes) {
             sizes.window = 5;
             sizes.sinks = true;
           }),
      with("values_from_keys", [](GroupedConfig& sizes) { sizes.values = Values::from_keys; }),
      with("like_gemma_4",
           [](GroupedConfig& sizes) {
             sizes.values = Values::from_keys;
             sizes.value_norm = true;
             sizes.qk_norm = QkNorm::per_head;
           }),
      with("normed_values",
           [](GroupedConfig& sizes) {
             sizes.value_norm = true;
             sizes.qk_norm = QkNorm::per_head;
           }),
      with("values_are_keys",
           [](GroupedConfig& sizes) {
             sizes.values = Values::keys;
             sizes.kv_heads = 1;
             sizes.qk_norm = QkNorm::per_head;
           }),
  };
}

// A block of random weights that bf16 holds, of size 1 / sqrt(in), in the host's memory.
class RandomGroupedAttention {
  tensor::CpuDevice device_{{.threads = 1}};  // outlives the block's vectors

 public:
  RandomGroupedAttention(std::mt19937& random, const GroupedCase& of) : random_(&random) {
    const GroupedConfig& sizes = of.sizes;
    block.sizes = sizes;
    block.heads = sizes.heads;
    block.kv_heads = sizes.kv_heads;
    const std::int64_t q_rows = sizes.head_dim * (sizes.gated ? 2 : 1);
    block.q = linear(lora::Projection::q, sizes.heads * q_rows, of.hidden);
    block.k = linear(lora::Projection::k, sizes.kv_heads * sizes.head_dim, of.hidden);
    if (sizes.values == Values::projected)
      block.v = linear(lora::Projection::v, sizes.kv_heads * sizes.head_dim, of.hidden);
    block.o = linear(lora::Projection::o, of.hidden, sizes.heads * sizes.head_dim);
    if (sizes.qk_norm == QkNorm::per_head) {
      block.q_norm.weight = vector(lora::test::random_numbers(random, sizes.head_dim), 1.5F);
      block.k_norm.weight = vector(lora::test::random_numbers(random, sizes.head_dim), 1.5F);
    }
    if (sizes.value_norm)
      block.v_norm.weight = vector(std::vector<float>(std::size_t(sizes.head_dim)), 1.0F);
    if (sizes.sinks) block.sinks = vector(lora::test::random_numbers(random, sizes.heads), 0);
  }

  GroupedAttention block;

 private:
  Linear linear(lora::Projection projection, std::int64_t out, std::int64_t in) {
    std::vector<float>& weight =
        weights_.emplace_back(lora::test::random_numbers(*random_, out * in));
    for (float& number : weight)
      number = bf16::from(number * std::sqrt(3.0F / static_cast<float>(in))).to_float();
    return {.site = {attention_layer, projection},
            .weight = quant::Weight::borrow(tensor::Tensor(
                reinterpret_cast<std::byte*>(weight.data()), DType::f32, {out, in}))};
  }
  Vector vector(std::vector<float> numbers, float more) {
    for (float& number : numbers) number += more;
    return Vector::create(numbers, device_, nullptr).value();
  }

  std::mt19937* random_;
  std::list<std::vector<float>> weights_;
};

// The weight is f32.
inline Row product(const Linear& linear, const Row& x) {
  const auto* weight = static_cast<const float*>(linear.weight.view().data);
  Row y(static_cast<std::size_t>(linear.out()));
  for (double& sum : y) {
    for (const double number : x) sum += double{*weight++} * number;
  }
  return y;
}

inline void normalise(const Norm& norm, std::span<double> x) {
  if (norm.weight.empty()) return;
  double squares = 0;
  for (const double number : x) squares += number * number;
  const double by = 1 / std::sqrt(squares / static_cast<double>(x.size()) + double{norm.eps});
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= by * double{norm.weight.data()[i]};
}

// In halves.
inline void rotate(const std::vector<float>& frequencies, std::size_t position,
                   std::span<double> x) {
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    double& first = x[i];
    double& second = x[i + frequencies.size()];
    const double angle = static_cast<double>(position) * double{frequencies[i]};
    const double kept = first;
    first = kept * std::cos(angle) - second * std::sin(angle);
    second = second * std::cos(angle) + kept * std::sin(angle);
  }
}

// What an adapter adds to a projection: by its number in the adapter's sites.
struct GroupedUse {
  const lora::Adapter* adapter = nullptr;
  float scale = 1;

  Row project(const Linear& map, const Row& x) const {
    Row y = product(map, x);
    if (adapter == nullptr) return y;
    for (const lora::SiteDelta& delta : adapter->sites) {
      if (delta.site != map.site) continue;
      const Row more = lora::test::delta_of(*adapter, delta.factors[0], x);
      for (std::size_t o = 0; o < y.size(); ++o) y[o] += double{scale} * more[o];
    }
    return y;
  }
};

// The definition in float64, for all rows of a sequence at once.
inline std::vector<Row> by_definition(const GroupedAttention& block, const GroupedUse& use,
                                      const std::vector<Row>& xs) {
  const GroupedConfig& sizes = block.sizes;
  const auto width = static_cast<std::size_t>(sizes.head_dim);
  const std::size_t q_rows = width * (sizes.gated ? 2 : 1);
  const auto group = static_cast<std::size_t>(sizes.heads / sizes.kv_heads);
  const std::vector<float> frequencies =
      sizes.rope.dims == 0 ? std::vector<float>()
                           : ops::rope_frequencies(sizes.rope).inverse_frequencies;
  std::vector<Row> keys;
  std::vector<Row> values;
  std::vector<Row> result;
  for (std::size_t position = 0; position < xs.size(); ++position) {
    const Row& x = xs[position];
    Row k = use.project(block.k, x);
    Row v = sizes.values == Values::projected ? use.project(block.v, x) : k;
    for (std::size_t head = 0; head < std::size_t(sizes.kv_heads); ++head) {
      const std::span<double> key = std::span(k).subspan(head * width, width);
      normalise(block.k_norm, key);
      rotate(frequencies, position, key);
      normalise(block.v_norm, std::span(v).subspan(head * width, width));
    }
    if (sizes.values == Values::keys) v = k;
    keys.push_back(k);
    values.push_back(v);

    Row q = use.project(block.q, x);
    Row attended(static_cast<std::size_t>(sizes.heads) * width);
    const std::size_t first = sizes.window > 0 && position >= std::size_t(sizes.window)
                                  ? position + 1 - std::size_t(sizes.window)
                                  : 0;
    for (std::size_t head = 0; head < std::size_t(sizes.heads); ++head) {
      const std::span<double> query = std::span(q).subspan(head * q_rows, width);
      normalise(block.q_norm, query);
      rotate(frequencies, position, query);
      double total = sizes.sinks ? std::exp(double{block.sinks.data()[head]}) : 0;
      for (std::size_t at = first; at <= position; ++at) {
        const std::size_t from = head / group * width;
        double score = 0;
        for (std::size_t i = 0; i < width; ++i) score += query[i] * keys[at][from + i];
        const double weight = std::exp(sizes.scale * score);
        total += weight;
        for (std::size_t i = 0; i < width; ++i)
          attended[head * width + i] += weight * values[at][from + i];
      }
      for (std::size_t i = 0; i < width; ++i) {
        attended[head * width + i] /= total;
        if (sizes.gated) attended[head * width + i] /= 1 + std::exp(-q[head * q_rows + width + i]);
      }
    }
    result.push_back(use.project(block.o, attended));
  }
  return result;
}

// Plain LoRA of rank 3 on all projections that the block has.
inline lora::Adapter adapter_of_all(std::mt19937& random, const GroupedAttention& block) {
  lora::test::AdapterMaker maker(random);
  for (const MapGroup& group : block.maps()) {
    for (const Linear* const map : group.maps) {
      const int a = maker.add(3, map->in());
      const int b = maker.add(map->out(), 3);
      maker.site(map->site, map->in(), map->out()).factors[0] = maker.factors(a, b, 3, 0.1F);
    }
  }
  return maker.done();
}

}  // namespace motley::model::test
