#include <utility>

#include "base/cat.h"
#include "base/system/random_id.h"
#include "base/units.h"
#include "server/api/generation_plan.h"
#include "server/api/render_reply.h"

// Routes that convert a chat or a completion to requests for /inference/v1/generate.
namespace motley::server {
namespace {

Result<RenderPlan> rendered(const json::Value& body, Result<GenerationPlan> planned,
                            std::string_view prefix) {
  MOTLEY_TRY(GenerationPlan generation, std::move(planned));
  MOTLEY_TRY_VOID(check_charge(generation.charge, generation.limits));
  RenderPlan plan{
      .id = cat(prefix, generation.request_id.empty() ? random_id() : generation.request_id),
      .body_members = members_for_body(*body.if_object()),
      .sampling_members = members_for_sampling(*body.if_object())};
  // Each prompt repeats them.
  const std::size_t repeated =
      (plan.body_members.size() + plan.sampling_members.size()) * generation.requests.size();
  if (repeated > generation.limits.answer_bytes)
    return Error(ErrorCode::too_long,
                 cat("the answer would have ", format_bytes(repeated), " of repeated fields"), "",
                 "send several requests");
  plan.generation = std::move(generation);
  return plan;
}

}  // namespace

Result<RenderPlan> GenerationPlanner::render_chat(const json::Value& body,
                                                  const Asked& asked) const {
  return rendered(body, chat(body, asked), "chatcmpl-");
}

Result<RenderPlan> GenerationPlanner::render_completion(const json::Value& body,
                                                        const Asked& asked) const {
  auto plan = rendered(body, completion(body, asked), "cmpl-");
  if (plan.ok()) plan->list = true;
  return plan;
}

}  // namespace motley::server
