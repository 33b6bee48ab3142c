#include "cli/bench/columns.h"

#include <cstdio>

namespace motley::cli {

std::string decimals(double number, int places) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", places, number);
  return text;
}

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.insert(0, width - text.size(), ' ');
  return text;
}

}  // namespace motley::cli
