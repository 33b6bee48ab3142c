#include "engine/adapter_name.h"

#include <algorithm>

#include "base/ascii.h"

namespace motley::engine {
namespace {

constexpr std::string_view marks = "._/-@:";

}  // namespace

bool is_adapter_name(std::string_view name) {
  constexpr std::size_t longest = 200;
  return !name.empty() && name.size() <= longest && std::ranges::all_of(name, [](char c) {
    return ascii::is_letter(c) || ascii::is_digit(c) || marks.find(c) != std::string_view::npos;
  });
}

}  // namespace motley::engine
