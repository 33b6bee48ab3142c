#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/residency/adapter_entry.h"
#include "lora/apply/batch.h"

namespace motley::engine {

class Residency;

// A claim on the adapters of a request: they are ready, or will be.
class Claim {
 public:
  Claim(Claim&& other) noexcept;
  Claim& operator=(Claim&& other) noexcept;
  ~Claim();

  // Whether all its adapters are ready; always true for the base.
  bool ready() const;
  // The error of a failed load.
  const Error* error() const;
  // Once ready: fixes the mix of the current contents, whatever is loaded under the names later.
  Result<void> resolve(std::span<const lora::ScaledAdapter> adapters);
  bool resolved() const { return resolved_; }
  // For a sequence that does not begin after all: the mix is resolved again when it does.
  void unresolve();
  // Its sequence begins; when preempted, it keeps the claim.
  void begin();
  bool begun() const { return begun_; }
  // Whether one of its adapters is closing.
  bool closing() const;
  // A claim for another sequence of the same request.
  Claim again() const;
  const lora::Mix& mix() const { return mix_; }
  // StartEvent::adapter_version, once resolved.
  const std::string& versions() const { return versions_; }

 private:
  friend class Residency;
  Claim(Residency* residency, std::span<AdapterEntry* const> entries);
  void release();

  Residency* residency_ = nullptr;
  std::vector<AdapterEntry*> entries_;
  bool resolved_ = false;
  bool begun_ = false;
  lora::Mix mix_;
  std::string versions_;
};

}  // namespace motley::engine
