#include "base/version.h"

namespace motley {

std::string_view version() { return MOTLEY_VERSION; }

}  // namespace motley
