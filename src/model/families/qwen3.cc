// Qwen3, dense: q and k are normed head by head.

#include "model/families.h"

namespace motley::model {

void read_qwen3(ConfigReader& json, Config& config) {
  config.attention.qk_norm = QkNorm::per_head;
  config.attention.qkv_bias = json.boolean_or("attention_bias", false);
  config.attention.o_bias = config.attention.qkv_bias;
}

}  // namespace motley::model
