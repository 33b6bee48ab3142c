#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/cat.h"
#include "base/function_ref.h"
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
  // Whether an adapter was replaced by content to which running requests switch, and that is ready.
  bool outdated() const;
  // The mix with this content. Later calls of mix() return it if `takes` accepts it; on an error
  // nothing changes.
  Result<void> renew(FunctionRef<Result<void>(const lora::Mix& mix)> takes);
  // For a sequence that does not begin after all: the mix is resolved again when it does.
  void unresolve();
  // Its sequence begins; when preempted, it keeps the claim.
  void begin();
  bool begun() const { return begun_; }
  // Whether one of its adapters is closing.
  bool closing() const;
  // A claim for another sequence of the same request.
  Claim again() const;
  const lora::Mix& mix() const { return contents_.mix; }
  // StartEvent::adapter_version, once resolved.
  std::string versions() const { return join(contents_.versions, ","); }

 private:
  friend class Residency;
  // What it was resolved to; lists are in the order of the request.
  struct Contents {
    std::vector<lora::Mix::Part> parts = {};
    std::vector<std::string> versions = {};
    lora::Mix mix = {};
  };

  Claim(Residency* residency, std::span<AdapterEntry* const> entries);
  void release();
  static bool is_outdated(const AdapterEntry& entry, const lora::Mix::Part& part);

  Residency* residency_ = nullptr;
  std::vector<AdapterEntry*> entries_;
  bool resolved_ = false;
  bool begun_ = false;
  Contents contents_;
};

}  // namespace motley::engine
