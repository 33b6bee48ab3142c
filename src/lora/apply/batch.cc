#include "lora/apply/batch.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/cat.h"
#include "base/check.h"
#include "plan/plan.h"

namespace motley::lora {

Result<Mix> Mix::make(std::span<const Part> parts) {
  if (parts.empty()) return Mix();
  if (parts.size() > static_cast<std::size_t>(max_mix)) {
    return Error(ErrorCode::invalid_argument,
                 cat(parts.size(), " adapters on one request, and at most ", max_mix, " can be"));
  }
  for (const Part& part : parts) {
    MOTLEY_CHECK(static_cast<bool>(part.adapter), "a mix of adapters that are there");
    const std::string adapter = quote(part.adapter->name());
    if (!std::isfinite(part.scale)) {
      return Error(ErrorCode::invalid_argument,
                   cat("the scale of adapter ", adapter, " is not a finite number"));
    }
    if (part.adapter->exclusive().empty()) continue;
    if (parts.size() > 1) {
      return Error(
          ErrorCode::unsupported,
          cat("adapter ", adapter, " can't be mixed with others: ", part.adapter->exclusive()), {},
          "use it alone");
    }
    if (part.scale != 1.0F) {
      return Error(ErrorCode::unsupported,
                   cat("adapter ", adapter, " can't have the scale ", part.scale, ": ",
                       part.adapter->exclusive()),
                   {}, "give the scale 1 or none");
    }
  }
  auto content = std::make_shared<Content>();
  content->parts.assign(parts.begin(), parts.end());
  std::ranges::sort(content->parts, {}, [](const Part& part) {
    return std::pair(part.adapter->version(), part.scale);
  });
  for (const Part& part : content->parts)
    content->key.push_back({part.adapter->version(), part.scale});
  Mix mix;
  mix.content_ = std::move(content);
  return mix;
}

std::span<const Mix::Part> Mix::parts() const {
  return content_ == nullptr ? std::span<const Part>() : std::span(content_->parts);
}

std::span<const Mix::KeyPart> Mix::key() const {
  return content_ == nullptr ? std::span<const KeyPart>() : std::span(content_->key);
}

bool operator==(const Mix& a, const Mix& b) {
  return a.content_ == b.content_ || std::ranges::equal(a.key(), b.key());
}

void Batch::build(std::span<const Mix> rows) {
  labels_.clear();
  mixes_.clear();
  terms_.clear();
  begin_.clear();
  begin_.push_back(0);
  for (const Mix& mix : rows) {
    if (mix.is_base()) {
      labels_.push_back(plan::no_label);
      continue;
    }
    // Rows of one sequence are adjacent, so the previous label is the most likely one.
    std::int32_t label = labels_.empty() ? plan::no_label : labels_.back();
    if (label == plan::no_label || !(this->mix(label) == mix)) {
      const auto found = std::ranges::find(mixes_, mix);
      label = static_cast<std::int32_t>(found - mixes_.begin());
      if (found == mixes_.end()) {
        mixes_.push_back(mix);
        for (const Mix::Part& part : mix.parts()) {
          terms_.push_back({&part.adapter->shard(rank_), part.scale});
          MOTLEY_CHECK(terms_.size() == 1 || part.adapter->dtype() == dtype_,
                       "adapters of one pool");
          dtype_ = part.adapter->dtype();
        }
        begin_.push_back(terms_.size());
      }
    }
    labels_.push_back(label);
  }
}

bool Batch::touches(Site site) const {
  return std::ranges::any_of(terms_,
                             [&](const Term& term) { return term.adapter->find(site) != nullptr; });
}

void Batch::add_sites(SiteSet& sites) const {
  for (const Term& term : terms_) sites.include(term.adapter->site_set());
}

bool Batch::touches_experts(std::int32_t layer) const {
  return touches({layer, Projection::expert_gate}) || touches({layer, Projection::expert_up}) ||
         touches({layer, Projection::expert_down});
}

const SiteView* Batch::alone(std::int32_t label, Site site) const {
  if (label == plan::no_label) return nullptr;
  const auto parts = terms(label);
  if (parts.size() != 1) return nullptr;
  const SiteView* const view = parts[0].adapter->find(site);
  if (view == nullptr) return nullptr;
  const bool special =
      view->gain != nullptr || view->replaced != nullptr || view->replaced_bias != nullptr;
  return special ? view : nullptr;
}

}  // namespace motley::lora
