#include "serving/forms/forced_parsers.h"

#include <algorithm>
#include <utility>

namespace motley::serving {

ParsedOutput NamedCallParser::push(std::string_view piece) {
  ParsedOutput output;
  if (piece.empty()) return output;
  if (!std::exchange(begun_, true)) output.begin_call(name_);
  output.add_arguments(piece);
  return output;
}

ParsedOutput CallListParser::push(std::string_view piece) {
  ParsedOutput output;
  held_ += piece;
  while (!held_.empty()) {
    if (at_ == At::head) {
      held_.erase(0, std::min(held_.find('{'), held_.size()));
      const auto head = read_json_call_head(held_);
      if (!head) break;
      output.begin_call(head->name);
      held_.erase(0, head->bytes);
      arguments_ = JsonExtent();
      at_ = At::arguments;
    } else if (at_ == At::arguments) {
      const std::size_t bytes = arguments_.take(held_);
      output.add_arguments(std::string_view(held_).substr(0, bytes));
      held_.erase(0, bytes);
      if (arguments_.ended()) at_ = At::after;
    } else {
      const std::size_t brace = held_.find('}');
      held_.erase(0, brace == std::string::npos ? held_.size() : brace + 1);
      if (brace != std::string::npos) at_ = At::head;
    }
  }
  return output;
}

}  // namespace motley::serving
