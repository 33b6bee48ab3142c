#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "lora/pages/pool.h"
#include "lora/site.h"
#include "lora/site_set.h"

namespace motley::lora {

// Most adapters on one request.
inline constexpr int max_mix = 16;

// The adapters of a request with their scales. Immutable; copies share it, and it pins its
// adapters. Without adapters it is the base.
class Mix {
 public:
  struct Part {
    Handle adapter;
    float scale = 1;
  };
  // (content version, scale): the key for caches of a request's results.
  struct KeyPart {
    ContentVersion version;
    float scale = 0;

    friend auto operator<=>(const KeyPart&, const KeyPart&) = default;
  };

  Mix() = default;
  // Refuses more than max_mix adapters, scales that are not finite, and adapters that cannot be
  // mixed (DoRA, replaced tensors) together with others or at a scale other than 1. Parts are
  // sorted by content version and scale, so that the order in a request changes no bit.
  static Result<Mix> make(std::span<const Part> parts);

  bool is_base() const { return content_ == nullptr; }
  std::span<const Part> parts() const;
  std::span<const KeyPart> key() const;

  // The same deltas at the same scales.
  friend bool operator==(const Mix& a, const Mix& b);

 private:
  struct Content {
    std::vector<Part> parts;
    std::vector<KeyPart> key;
  };
  std::shared_ptr<const Content> content_;
};

// The mixes of one step: maps rows to labels 0 and up (plan::no_label is the base), and has for
// each label its adapters' factors at a site. Holds the mixes, so their adapters stay pinned until
// the next build() or clear(). Allocates nothing once it has seen as many rows and labels.
class Batch {
 public:
  // Of several ranks, whose steps have the same rows: the terms are this rank's shards.
  explicit Batch(int rank = 0) : rank_(rank) {}

  struct Term {
    const Resident* adapter;
    float scale;
  };

  // Labels are assigned in order of first appearance.
  void build(std::span<const Mix> rows);
  void clear() { build({}); }

  std::span<const std::int32_t> labels() const { return labels_; }
  int label_count() const { return static_cast<int>(mixes_.size()); }
  // No row has an adapter.
  bool empty() const { return mixes_.empty(); }
  // The dtype of all factors: a batch has adapters of one pool only.
  DType dtype() const { return dtype_; }
  // The dtype of whole weights that replace the base's.
  DType table_dtype() const { return PageFormat{.dtype = dtype_}.table_dtype(); }

  std::span<const Term> terms(std::int32_t label) const {
    const auto at = static_cast<std::size_t>(label);
    return std::span(terms_).subspan(begin_[at], begin_[at + 1] - begin_[at]);
  }
  const Mix& mix(std::int32_t label) const { return mixes_[static_cast<std::size_t>(label)]; }

  // Whether any label has an entry at the site.
  bool touches(Site site) const;
  // Adds the sites of all labels.
  void add_sites(SiteSet& sites) const;
  // Whether any label has factors for the layer's experts. If not, a backend gets no deltas.
  bool touches_experts(std::int32_t layer) const;
  // Only an adapter that is alone in its mix may have a gain, a replaced weight or bias. Null if
  // the label has none at the site.
  const SiteView* alone(std::int32_t label, Site site) const;

 private:
  int rank_;
  std::vector<std::int32_t> labels_;
  std::vector<Mix> mixes_;  // by label
  std::vector<Term> terms_;
  std::vector<std::size_t> begin_;
  DType dtype_ = DType::f32;
};

}  // namespace motley::lora
