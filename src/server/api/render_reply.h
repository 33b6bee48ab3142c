#pragma once

#include <cstddef>
#include <string>

#include "server/api/fields/token_lists.h"
#include "server/api/generation_plan.h"

namespace motley::server {

// Requests for /inference/v1/generate, one for each prompt of a plan, in pieces; empty after the
// last one. As in vLLM, those of completions are a list. What is neutral is left out.
class RenderReply {
 public:
  explicit RenderReply(RenderPlan plan) : plan_(std::move(plan)) {}
  std::string next_piece();

 private:
  // The members before the ids of a prompt, and those after them.
  std::string opening() const;
  std::string closing() const;

  RenderPlan plan_;
  std::size_t prompt_ = 0;
  bool begun_ = false;  // the prompt
  ListPlace place_;
};

// The fields of the body that such a request has as they are: its own, and those of its
// `sampling_params`. As JSON, each with a comma before it.
std::string members_for_body(const json::Object& body);
std::string members_for_sampling(const json::Object& body);

}  // namespace motley::server
