#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"

namespace motley::text {

// The section "post_processor" of a tokenizer.json: adds tokens around a text.
class PostProcessor {
 public:
  static Result<PostProcessor> parse(const json::Value* section, std::string_view where);

  // The ids of a text, with or without the added ones.
  std::vector<std::int32_t> apply(std::vector<std::int32_t> ids, bool add_special_tokens) const;

  // The largest id that may be added, -1 if there is none.
  std::int32_t largest_id() const;

 private:
  // The text, or tokens.
  struct Part {
    bool is_text = false;
    std::vector<std::int32_t> ids;
  };

  static Result<std::vector<Part>> parse_template(const class Component& component);

  std::vector<Part> parts_{{.is_text = true}};
};

}  // namespace motley::text
