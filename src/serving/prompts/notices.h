#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace motley::serving {

// The most places that a list names. One more is kept to show that it is incomplete.
inline constexpr std::size_t max_noticed = 32;

inline bool notices_full(const std::vector<std::string>& list) { return list.size() > max_noticed; }
// Does nothing if the list is full.
inline void add_notice(std::string place, std::vector<std::string>& list) {
  if (!notices_full(list)) list.push_back(std::move(place));
}

// What the answer to a request says about it, by places in the request.
struct Notices {
  std::vector<std::string> ignored;     // unknown fields
  std::vector<std::string> unenforced;  // parts of a schema that the grammar does not enforce
};

}  // namespace motley::serving
