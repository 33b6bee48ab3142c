#pragma once

#include <map>
#include <utility>
#include <vector>

#include "lora/files/adapter.h"
#include "lora/files/config/config.h"
#include "lora/files/conventions/gather.h"
#include "lora/files/load.h"
#include "lora/site.h"

namespace motley::lora {

// State that the parts of the loader share while they build an adapter.
class Builder {
 public:
  Builder(const Config& file_config, const LoadOptions& load_options, const BaseView& base_view,
          const SiteIndex& site_index)
      : config(file_config), options(load_options), base(base_view), sites(site_index) {}

  int add(Matrix matrix) {
    adapter.matrices.push_back(std::move(matrix));
    return static_cast<int>(adapter.matrices.size()) - 1;
  }

  // The delta at a site; created on first use.
  SiteDelta& at(const SiteSpec& spec) {
    SiteDelta& delta = deltas[spec.site];
    if (delta.factors.empty()) {
      delta.site = spec.site;
      delta.in = spec.in;
      delta.out = spec.out;
      delta.factors.resize(static_cast<std::size_t>(std::max(spec.experts, 1)));
    }
    return delta;
  }

  const Config& config;
  const LoadOptions& options;
  const BaseView& base;
  const SiteIndex& sites;
  // To come: whatever depends on them alone is left out.
  Numbers numbers = Numbers::present;
  Adapter adapter;
  std::map<Site, SiteDelta> deltas;
};

Matrix transposed(const Matrix& from);

// Every unit whose form is plain: linear maps, the embedding, the head, with their biases, gains
// and replacements.
Result<void> build_plain(Builder& builder, const Units& units);

// Maps whose rows are in parts with factors of their own.
Result<void> build_row_parts(Builder& builder, const Units& units);

// Every other unit: experts in all their spellings.
Result<void> build_experts(Builder& builder, const Units& units);

struct DoraParams {
  const SiteDelta& delta;
  const Matrix& a;
  const Matrix& b;
  const Matrix* weight = nullptr;  // the table that replaces the base's, or null
  const Matrix& magnitude;         // [out]
  const Unit::Item& item;          // the magnitude's tensor, for messages
};

// Magnitude over the norm of each row of W + scale B A.
Result<Matrix> dora_gain(const BaseView& base, const DoraParams& params);

}  // namespace motley::lora
