#pragma once

namespace motley {

// One function object of several: what std::visit() calls depends on the type of the alternative.
template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};

}  // namespace motley
