#include "lora/site.h"

#include "base/cat.h"

namespace motley::lora {

std::string to_string(Site site) {
  if (site.layer < 0) return std::string(name(site.projection));
  return cat("layers.", site.layer, ".", name(site.projection));
}

}  // namespace motley::lora
