// DeepSeek-V2: latent attention; softmax router, plain or limited to groups; shared experts.

#include "base/cat.h"
#include "model/families.h"

namespace motley::model {

void read_deepseek_v2(ConfigReader& json, Config& config) {
  read_latent_attention(json, config);

  moe::RouterSpec& router = config.moe.router;
  router.experts = static_cast<int>(json.integer("n_routed_experts"));
  router.top_k = static_cast<int>(json.integer("num_experts_per_tok"));
  router.scale = static_cast<float>(json.number_or("routed_scaling_factor", 1.0));
  const std::string method = json.text_or("topk_method", "greedy");
  if (method == "greedy") {
    router.kind = moe::RouterKind::softmax_then_topk;
  } else if (method == "group_limited_greedy") {
    router.kind = moe::RouterKind::grouped_softmax;
    router.groups = static_cast<int>(json.integer("n_group"));
    router.kept_groups = static_cast<int>(json.integer("topk_group"));
  } else {
    json.refuse(ErrorCode::unsupported, cat("topk_method is ", quote(method)),
                "DeepSeek-V2 models route with greedy or group_limited_greedy");
  }
  // Released configs set it to false, and transformers never renormalises in this family.
  if (json.boolean_or("norm_topk_prob", false))
    json.refuse(ErrorCode::unsupported, "norm_topk_prob is true",
                "no DeepSeek-V2 model renormalises the weights of its experts");
  config.moe.intermediate = json.integer("moe_intermediate_size");
  config.moe.shared_intermediate = config.moe.intermediate * json.integer_or("n_shared_experts", 0);
  mark_moe_layers_behind_dense(json, config);
}

}  // namespace motley::model
