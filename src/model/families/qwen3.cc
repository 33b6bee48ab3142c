// Qwen3, dense: q and k are normed head by head.

#include "model/families.h"

namespace motley::model {

void read_qwen3(ConfigReader& json, Config& config) {
  GroupedConfig& attention = config.grouped();
  attention.qk_norm = QkNorm::per_head;
  attention.qkv_bias = json.boolean_or("attention_bias", false);
  attention.o_bias = attention.qkv_bias;
}

}  // namespace motley::model
