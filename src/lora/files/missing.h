#pragma once

#include <map>
#include <string>
#include <vector>

#include "lora/files/adapter.h"
#include "lora/files/config/config.h"
#include "lora/files/conventions/gather.h"
#include "lora/site.h"

namespace motley::lora {

// What a configuration names and the base has, but the file has no factors for.
struct Missing {
  std::vector<std::string>
      modules;  // "model.layers.3.self_attn.q_proj", as the file would spell it
  // Kinds of modules that occur nowhere though names may refer to them; not an error.
  std::vector<std::string> kinds;
};

// The rules, which docs/design/lora.md explains:
//  - a named Linear occurs in every selected layer that has it;
//  - routers and expert projections may be absent altogether. One that occurs somewhere occurs in
//    every selected layer that has it, and an expert that occurs has all named parts;
//  - with "all-linear" or no list, kinds that occur nowhere are passed over; so is a dense block or
//    a shared expert that a list names only by a word of the experts' projections, in a file that
//    adapts experts alone;
//  - a parameter in target_parameters occurs in every layer that has it.
// `deltas` is what the units came to.
Missing find_missing(const Units& units, const std::map<Site, SiteDelta>& deltas,
                     const Config& config, const BaseView& base);

}  // namespace motley::lora
