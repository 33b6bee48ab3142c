#pragma once

#include "model/model.h"
#include "serving/memory_plan.h"

namespace motley::serving {

// What steps of a loaded model need, of this rank.
ModelSizes sizes_of(const model::Model& model);

}  // namespace motley::serving
