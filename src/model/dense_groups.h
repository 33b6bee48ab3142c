#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/tuning/candidates.h"
#include "kernels/tuning/tuning.h"
#include "model/model.h"

// A model's dense products as a GPU launches them: what tuning measures, and what reports name.
namespace motley::model {

// Maps of one x, which a step computes together.
using DenseGroup = std::vector<const Linear*>;

// In order of layers, the head last. Without products per head.
std::vector<DenseGroup> dense_groups(const Model& model);

// The products of a group as they are launched: contiguous ones are one, and each part has one
// format. For rows of bf16 at x whose results lie side by side at y.
struct DenseRows {
  std::int64_t rows = 1;
  const void* x = nullptr;
  float* y = nullptr;
};
std::vector<std::vector<kernels::Linear>> dense_products(const DenseGroup& group,
                                                         const DenseRows& rows);
// The parts of all groups, with addresses of results that nothing may write to.
std::vector<std::vector<kernels::Linear>> all_dense_products(const Model& model);
kernels::DenseShape dense_shape(std::span<const kernels::Linear> products);
// As tuning names it.
kernels::ExpertLayerShape expert_layer_shape(const MoeBlock& block);

// What a tuning was not measured for, of a model on a GPU: "3 of 5 dense products"; empty: nothing.
std::string not_tuned(const Model& model, const kernels::Tuning& tuning);

// The kernels for weights of one format.
struct DenseKernels {
  std::string format;
  std::set<std::string_view> few;  // rows
  std::set<std::string_view> many;
  // "gemv_bulk: it reads ..."
  std::set<std::string> passed_over;
};
struct DenseReport {
  bool exact = false;
  bool batch_invariant = false;
  const kernels::Tuning* tuning = nullptr;
};
// By format, for the GPU that this build has kernels for; empty in a build without CUDA. The model
// may be loaded on another device.
std::vector<DenseKernels> dense_kernels(const Model& model, const DenseReport& report);
std::string to_string(const DenseKernels& kernels);
// All of them, of a model on a GPU.
std::string describe_dense(const Model& model);

}  // namespace motley::model
