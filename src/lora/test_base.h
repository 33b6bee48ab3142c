#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/system/files.h"
#include "lora/site.h"
#include "tensor/safetensors/safetensors.h"
#include "tensor/tensor.h"

// Bases and adapter folders for tests.
namespace motley::lora::test {

// A base with given sites, whose weights are float32; weights that are not set are zero.
class FakeBase : public BaseView {
 public:
  void add(SiteSpec spec) {
    const auto at = std::ranges::lower_bound(specs_, spec.site, {}, &SiteSpec::site);
    specs_.insert(at, spec);
  }
  // Expert e's rows follow those of expert e - 1.
  void set(Site site, std::vector<float> weight) { weights_[site] = std::move(weight); }

  void set_file_tensor(const std::string& tensor_name, const std::vector<std::int64_t>& dims,
                       std::vector<float> numbers) {
    file_tensors_[tensor_name] = {tensor::Shape::make(dims).value(), std::move(numbers)};
  }

  std::span<const SiteSpec> sites() const override { return specs_; }
  BlockNames block_names() const override { return names; }
  std::optional<tensor::ConstTensor> file_tensor(std::string_view tensor_name) const override {
    const auto found = file_tensors_.find(tensor_name);
    if (found == file_tensors_.end()) return std::nullopt;
    const auto& [shape, numbers] = found->second;
    return tensor::ConstTensor(reinterpret_cast<const std::byte*>(numbers.data()), DType::f32,
                               shape);
  }
  bool experts_transposed() const override { return transposed; }
  bool gate_up_interleaved() const override { return interleaved; }
  bool tied_embeddings() const override { return tied; }
  void rows(Site site, int expert, std::int64_t begin, std::int64_t end,
            float* out) const override {
    const auto spec = std::ranges::find(specs_, site, &SiteSpec::site);
    MOTLEY_CHECK(spec != specs_.end(), "a site of the base");
    const bool table = site.projection == Projection::embed;
    const std::int64_t columns = table ? spec->out : spec->in;
    const std::int64_t rows = table ? spec->in : spec->out;
    const auto found = weights_.find(site);
    for (std::int64_t i = begin * columns; i < end * columns; ++i) {
      *out++ = found == weights_.end()
                   ? 0.0F
                   : found->second[static_cast<std::size_t>(expert * rows * columns + i)];
    }
  }

  BlockNames names;
  bool transposed = false;
  bool interleaved = false;
  bool tied = false;

 private:
  std::vector<SiteSpec> specs_;
  std::map<Site, std::vector<float>> weights_;
  std::map<std::string, std::pair<tensor::Shape, std::vector<float>>, std::less<>> file_tensors_;
};

// A model of `layers` equal layers: attention of width `hidden`, and experts.
struct ModelShape {
  int layers = 2;
  std::int64_t hidden = 24;
  std::int64_t intermediate = 20;
  int experts = 4;
  std::int64_t vocabulary = 30;
};

inline FakeBase make_base(const ModelShape& shape) {
  FakeBase base;
  for (std::int32_t layer = 0; layer < shape.layers; ++layer) {
    const auto add = [&](Projection projection, std::int64_t in, std::int64_t out,
                         int experts = 0) { base.add({{layer, projection}, in, out, experts}); };
    add(Projection::q, shape.hidden, shape.hidden + 8);
    add(Projection::k, shape.hidden, 12);
    add(Projection::o, shape.hidden + 8, shape.hidden);
    add(Projection::router, shape.hidden, shape.experts);
    add(Projection::expert_gate, shape.hidden, shape.intermediate, shape.experts);
    add(Projection::expert_up, shape.hidden, shape.intermediate, shape.experts);
    add(Projection::expert_down, shape.intermediate, shape.hidden, shape.experts);
  }
  base.add({{-1, Projection::embed}, shape.vocabulary, shape.hidden});
  base.add({{-1, Projection::lm_head}, shape.hidden, shape.vocabulary});
  return base;
}

inline std::vector<float> random_numbers(std::mt19937& random, std::int64_t count) {
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (float& number : numbers) number = uniform(random);
  return numbers;
}

// Builds an adapter folder.
class AdapterFiles {
 public:
  // Adds PEFT's prefix to names.
  void add(const std::string& name, std::vector<std::int64_t> dims, std::vector<float> numbers) {
    names_.push_back("base_model.model." + name);
    shapes_.push_back(tensor::Shape::make(dims).value());
    numbers_.push_back(std::move(numbers));
  }
  void write(const std::filesystem::path& folder, const std::string& config) const {
    std::vector<tensor::NamedTensor> tensors;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      tensors.push_back(
          {names_[i], tensor::ConstTensor(reinterpret_cast<const std::byte*>(numbers_[i].data()),
                                          DType::f32, shapes_[i])});
    }
    tensor::write_safetensors(folder / "adapter_model.safetensors", tensors).value();
    auto file = AtomicFile::create(folder / "adapter_config.json");
    file.value().write(config).value();
    file.value().commit().value();
  }

 private:
  std::vector<std::string> names_;
  std::vector<tensor::Shape> shapes_;
  std::vector<std::vector<float>> numbers_;
};

}  // namespace motley::lora::test
