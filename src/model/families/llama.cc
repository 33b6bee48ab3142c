// Llama, dense: the plain case.

#include "model/families.h"

namespace motley::model {

void read_llama(ConfigReader& json, Config& config) {
  GroupedConfig& attention = config.grouped();
  attention.qkv_bias = json.boolean_or("attention_bias", false);
  attention.o_bias = attention.qkv_bias;
  if (json.boolean_or("mlp_bias", false))
    json.refuse(ErrorCode::unsupported, "mlp_bias is true",
                "biases on a dense feed-forward block are not supported");
}

}  // namespace motley::model
