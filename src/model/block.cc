#include "model/block.h"

namespace motley::model {

bool Mixer::has_second_form(const ops::Context&) const { return false; }

std::int64_t Mixer::max_positions(std::int64_t, std::int64_t) const { return 0; }

std::int64_t Mixer::saved_by_second_form(std::int64_t, std::int64_t) const { return 0; }

}  // namespace motley::model
