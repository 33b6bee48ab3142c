#include "cli/bench/tune/dense_tuner.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "kernels/tuning/candidates.h"
#include "kernels/tuning/crossovers.h"
#include "model/dense_groups.h"

namespace motley::cli {
namespace {

using kernels::WeightView;

constexpr std::int64_t max_rows = 4096;
constexpr std::int64_t max_result_bytes = std::int64_t{1} << 30;
// Of weights in turn: several times L2, so that each launch reads its own from memory.
constexpr std::int64_t cold_bytes = 256'000'000;
constexpr int min_launches = 16;
constexpr int max_launches = 256;

std::int64_t code_bytes(const WeightView& w) {
  return w.out * ((w.in * kernels::code_bits(w.kind) + 7) / 8);
}
std::int64_t scale_count(const WeightView& w) {
  if (w.scales == nullptr) return 0;
  return (w.out + w.block_rows - 1) / w.block_rows * w.groups();
}

// The model's weights for one shape of products, and copies of them until they exceed L2.
class WeightSets {
 public:
  WeightSets(tensor::Device& device, tensor::Stream& stream) : device_(device), stream_(stream) {}

  Result<void> add(const std::vector<kernels::Linear>& products) {
    std::vector<WeightView> views;
    for (const kernels::Linear& product : products) {
      views.push_back(product.w);
      if (sets_.empty()) set_bytes_ += code_bytes(product.w);
    }
    sets_.push_back(std::move(views));
    return {};
  }

  Result<void> copy_until_cold() {
    const std::size_t own = sets_.size();
    const auto wanted = static_cast<std::size_t>(std::min<std::int64_t>(
        max_launches, cold_bytes / std::max<std::int64_t>(set_bytes_, 1) + 1));
    while (sets_.size() < wanted) {
      std::vector<WeightView> views = sets_[sets_.size() % own];
      for (WeightView& view : views) MOTLEY_TRY_VOID(copy(view));
      sets_.push_back(std::move(views));
    }
    return stream_.synchronize();
  }

  std::size_t size() const { return sets_.size(); }
  const std::vector<WeightView>& at(std::size_t index) const { return sets_[index % sets_.size()]; }

 private:
  Result<void> copy(WeightView& view) {
    MOTLEY_TRY(view.data, copied(view.data, code_bytes(view)));
    const std::int64_t scales = scale_count(view);
    if (scales == 0) return {};
    MOTLEY_TRY(view.scales, copied(view.scales, (scales * bits(view.scale_type) + 7) / 8));
    if (view.zero_points == nullptr) return {};
    MOTLEY_TRY(const void* const zeros, copied(view.zero_points, scales));
    view.zero_points = static_cast<const std::uint8_t*>(zeros);
    return {};
  }
  Result<const void*> copied(const void* from, std::int64_t bytes) {
    MOTLEY_TRY(tensor::Buffer buffer, device_.allocate(static_cast<std::size_t>(bytes)));
    MOTLEY_TRY_VOID(stream_.copy(buffer.data(), from, static_cast<std::size_t>(bytes)));
    const void* const data = buffer.data();
    memory_.push_back(std::move(buffer));
    return data;
  }

  tensor::Device& device_;
  tensor::Stream& stream_;
  std::vector<std::vector<WeightView>> sets_;
  std::vector<tensor::Buffer> memory_;
  std::int64_t set_bytes_ = 0;
};

struct Products {
  kernels::DenseShape shape;
  std::vector<kernels::Linear> first;
  WeightSets sets;
};

// What kernels gain in a step that read their weights before the grid ahead of them ends: 2 to 4 us
// on an H200 (bench/results/2026-11-28-tuned-thresholds.md). A launch by itself does not show it.
constexpr double reads_ahead_us = 2.5;

kernels::MeasuredTimes times_in_steps(kernels::MeasuredTimes times) {
  for (auto& candidate : times.candidates) {
    if (!candidate.name.starts_with("gemv_bulk")) continue;
    for (std::optional<double>& us : candidate.us)
      if (us) us = std::max(*us - reads_ahead_us, 0.0);
  }
  return times;
}

class DenseTuner {
 public:
  DenseTuner(tensor::Device& device, GraphTimer& timer) : device_(device), timer_(timer) {}

  Result<kernels::TunedDense> tune(Products& products) {
    std::int64_t width = 0;
    for (const std::int64_t out : products.shape.outputs) width += out;
    const std::int64_t most =
        std::min(max_rows, max_result_bytes / (width * static_cast<std::int64_t>(sizeof(float))));
    const std::vector<std::int64_t> ladder =
        kernels::tuning_ladder(std::max<std::int64_t>(most, 1));
    MOTLEY_TRY_VOID(products.sets.copy_until_cold());
    MOTLEY_TRY(
        x_, device_.allocate(static_cast<std::size_t>(ladder.back() * products.shape.inputs * 2)));
    MOTLEY_TRY_VOID(fill_random(timer_.stream(), x_.data(), x_.size()));
    MOTLEY_TRY(y_,
               device_.allocate(static_cast<std::size_t>(ladder.back() * width) * sizeof(float)));
    std::vector<std::string> names;
    for (const std::string_view name : kernels::cuda::dense_candidates()) names.emplace_back(name);
    kernels::TunedDense tuned{.shape = products.shape, .rows = {}, .times = {}};
    MOTLEY_TRY(tuned.times,
               kernels::measure_candidates(
                   names, ladder, [&](std::size_t candidate, std::int64_t rows, double limit_us) {
                     return measure(names[candidate], products, rows, limit_us);
                   }));
    tuned.rows = kernels::find_crossovers(times_in_steps(tuned.times));
    return tuned;
  }

 private:
  // The products of weight set i.
  std::vector<kernels::Linear> launch(const Products& products, std::int64_t rows,
                                      std::size_t set) const {
    std::vector<kernels::Linear> all = products.first;
    const std::vector<WeightView>& weights = products.sets.at(set);
    float* y = reinterpret_cast<float*>(y_.data());
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i].rows = rows;
      all[i].x = x_.data();
      all[i].w = weights[i];
      all[i].y = y;
      y += all[i].out;
    }
    return all;
  }

  Result<std::optional<double>> measure(const std::string& kernel, const Products& products,
                                        std::int64_t rows, double limit_us) {
    if (!kernels::cuda::can_run_dense(kernel, launch(products, rows, 0), timer_.handle()))
      return std::optional<double>();
    const int launches =
        std::clamp(static_cast<int>(products.sets.size()), min_launches, max_launches);
    MOTLEY_TRY(const double us,
               timer_.time(
                   launches, [](StreamHandle) {},
                   [&](int i, StreamHandle stream) {
                     kernels::cuda::run_dense(
                         kernel, launch(products, rows, static_cast<std::size_t>(i)), stream);
                   },
                   limit_us));
    return std::optional(us);
  }

  tensor::Device& device_;
  GraphTimer& timer_;
  tensor::Buffer x_;
  tensor::Buffer y_;
};

}  // namespace

Result<std::vector<kernels::TunedDense>> tune_dense(
    const model::Model& model, tensor::Device& device, GraphTimer& timer,
    FunctionRef<void(const kernels::TunedDense&)> done) {
  std::vector<Products> all;
  for (const std::vector<kernels::Linear>& products : model::all_dense_products(model)) {
    const kernels::DenseShape shape = model::dense_shape(products);
    auto found = std::ranges::find(all, shape, &Products::shape);
    if (found == all.end()) {
      all.push_back({shape, products, WeightSets(device, timer.stream())});
      found = all.end() - 1;
    }
    MOTLEY_TRY_VOID(found->sets.add(products));
  }
  std::vector<kernels::TunedDense> tuned;
  for (Products& products : all) {
    MOTLEY_TRY(kernels::TunedDense one, DenseTuner(device, timer).tune(products));
    done(one);
    tuned.push_back(std::move(one));
  }
  return tuned;
}

}  // namespace motley::cli
