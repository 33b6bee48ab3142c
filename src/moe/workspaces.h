#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "moe/backend.h"

namespace motley::moe {

// The workspaces of a model's layers, which have the same sizes: one for each backend that serves
// some of them.
class Workspaces {
 public:
  // Does nothing if the backend has one already.
  Result<void> add(const Backend& backend, const Problem& problem, std::int64_t max_tokens,
                   const DeltaLimits& limits, tensor::Device& device);
  void begin_step(std::int64_t tokens, const std::int32_t* labels, StreamHandle stream);
  Workspace& of(const Backend& backend) const;

 private:
  std::map<const Backend*, std::unique_ptr<Workspace>> all_;
};

}  // namespace motley::moe
