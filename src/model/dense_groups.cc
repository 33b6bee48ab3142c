#include "model/dense_groups.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "base/cat.h"

namespace motley::model {
namespace {

// The weight that a GPU's kernels read.
kernels::WeightView view_on_gpu(const Linear& linear, bool exact) {
  const quant::Weight& weight = linear.host_weight();
  // As WeightSource::resident() places it.
  const bool decoded =
      !exact && weight.format().scales != quant::Format::Scales::none && weight.columns() % 8 != 0;
  kernels::WeightView view = weight.view();
  if (decoded) view = {.kind = kernels::WeightKind::bf16};
  view.out = linear.out();
  view.in = decoded ? weight.in() : weight.columns();
  return view;
}

struct NamedViews {
  std::vector<std::string> formats;
  std::vector<kernels::WeightView> views;
};

// As load_linears() places a group: plain weights of one format are one.
NamedViews views_on_gpu(const DenseGroup& group, bool exact) {
  NamedViews named;
  for (const Linear* const linear : group) {
    const quant::Format& format = linear->host_weight().format();
    std::string name = quant::to_string(format);
    const bool plain = format.scales == quant::Format::Scales::none;
    if (plain && !named.formats.empty() && named.formats.back() == name) {
      named.views.back().out += linear->out();
      continue;
    }
    named.formats.push_back(std::move(name));
    named.views.push_back(view_on_gpu(*linear, exact));
  }
  return named;
}

template <class Shape, class Entries>
std::size_t count_missing(const std::vector<Shape>& shapes, const Entries& entries) {
  return static_cast<std::size_t>(std::ranges::count_if(shapes, [&](const Shape& shape) {
    return std::ranges::none_of(entries, [&](const auto& entry) { return entry.shape == shape; });
  }));
}

template <class Shape>
void add_new(std::vector<Shape>& shapes, Shape shape) {
  if (std::ranges::find(shapes, shape) == shapes.end()) shapes.push_back(std::move(shape));
}

}  // namespace

std::vector<DenseGroup> dense_groups(const Model& model) {
  std::vector<DenseGroup> groups;
  for_each_block(model.layers(), [&](const Block& block) {
    for (MapGroup& group : block.maps())
      if (!group.per_head) groups.push_back(std::move(group.maps));
  });
  groups.push_back({&model.head()});
  return groups;
}

std::vector<std::vector<kernels::Linear>> dense_products(const DenseGroup& group,
                                                         const DenseRows& rows) {
  std::int64_t width = 0;
  for (const Linear* const linear : group) width += linear->out();
  std::vector<kernels::Linear> products;
  float* y = rows.y;
  for (const Linear* const linear : group) {
    products.push_back({.rows = rows.rows,
                        .x = rows.x,
                        .x_type = DType::bf16,
                        .x_stride = linear->weight.columns(),
                        .w = linear->weight.view(),
                        .w_rows_per_head = linear->out(),
                        .out = linear->out(),
                        .y = y,
                        .y_stride = width,
                        .exact = false});
    y += linear->out();
  }
  std::vector<std::vector<kernels::Linear>> parts;
  for (const kernels::Linear& product : kernels::cuda::join_products(products)) {
    const bool like_last = !parts.empty() && parts.back().front().w.kind == product.w.kind &&
                           parts.back().front().w.block_columns == product.w.block_columns;
    if (!like_last) parts.emplace_back();
    parts.back().push_back(product);
  }
  return parts;
}

std::vector<std::vector<kernels::Linear>> all_dense_products(const Model& model) {
  const std::vector<DenseGroup> groups = dense_groups(model);
  std::int64_t widest = 0;
  for (const DenseGroup& group : groups) {
    std::int64_t width = 0;
    for (const Linear* const linear : group) width += linear->out();
    widest = std::max(widest, width);
  }
  std::vector<float> results(static_cast<std::size_t>(widest));
  std::vector<std::vector<kernels::Linear>> all;
  for (const DenseGroup& group : groups) {
    for (std::vector<kernels::Linear>& part : dense_products(group, {.y = results.data()}))
      all.push_back(std::move(part));
  }
  return all;
}

kernels::DenseShape dense_shape(std::span<const kernels::Linear> products) {
  const kernels::WeightView& first = products.front().w;
  kernels::DenseShape shape{
      .kind = first.kind, .group = first.block_columns, .inputs = first.in, .outputs = {}};
  for (const kernels::Linear& product : products) shape.outputs.push_back(product.out);
  return shape;
}

kernels::ExpertLayerShape expert_layer_shape(const MoeBlock& block) {
  const moe::Problem& problem = block.problem;
  const bool decoded = block.backend->name() == "cuda_grouped_decoded";
  return {.bits = decoded ? 16 : problem.gate_up.bits,
          .experts = problem.experts,
          .hidden = problem.hidden,
          .intermediate = problem.intermediate,
          .experts_per_token = problem.top_k};
}

std::string not_tuned(const Model& model, const kernels::Tuning& tuning) {
  std::vector<kernels::DenseShape> dense;
  for (const std::vector<kernels::Linear>& products : all_dense_products(model))
    add_new(dense, dense_shape(products));
  std::vector<kernels::ExpertLayerShape> experts;
  for_each_moe(model.layers(), [&](const MoeBlock& block, std::size_t) {
    if (block.backend->kernels().size() > 1) add_new(experts, expert_layer_shape(block));
  });
  std::vector<std::string> parts;
  const auto tell = [&](std::size_t missing, std::size_t all, std::string_view what) {
    if (missing > 0) parts.push_back(cat(missing, " of ", all, " ", what));
  };
  tell(count_missing(dense, tuning.dense), dense.size(), "dense products");
  tell(count_missing(experts, tuning.experts), experts.size(), "expert layers");
  return join(parts, " and ");
}

std::vector<DenseKernels> dense_kernels(const Model& model, const DenseReport& report) {
  std::map<std::string, DenseKernels> by_format;
  for (const DenseGroup& group : dense_groups(model)) {
    const NamedViews named = views_on_gpu(group, report.exact);
    for (std::size_t i = 0; i < named.views.size(); ++i) {
      // Those of another format are launched apart.
      if (i > 0 && named.formats[i] == named.formats[i - 1]) continue;
      const auto selection =
          kernels::cuda::describe_dense({.products = std::span(named.views).subspan(i),
                                         .exact = report.exact,
                                         .batch_invariant = report.batch_invariant,
                                         .tuning = report.tuning});
      if (!selection) return {};
      DenseKernels& kernels = by_format[named.formats[i]];
      kernels.format = named.formats[i];
      kernels.few.insert(selection->few);
      kernels.many.insert(selection->many);
      for (const auto& [kernel, reason] : selection->passed_over)
        kernels.passed_over.insert(cat(kernel, ": ", reason));
    }
  }
  std::vector<DenseKernels> all;
  for (auto& [format, kernels] : by_format) all.push_back(std::move(kernels));
  return all;
}

std::string describe_dense(const Model& model) {
  std::vector<std::string> parts;
  for (const DenseKernels& each : dense_kernels(model, {.exact = model.exact(),
                                                        .batch_invariant = model.batch_invariant(),
                                                        .tuning = model.tuning()}))
    parts.push_back(to_string(each));
  return join(parts, "; ");
}

std::string to_string(const DenseKernels& kernels) {
  return cat(
      kernels.format, " by ", join(kernels.few, " or "), " for few rows, ",
      join(kernels.many, " or "), " for many",
      kernels.passed_over.empty() ? "" : cat(" (not ", join(kernels.passed_over, "; "), ")"));
}

}  // namespace motley::model
