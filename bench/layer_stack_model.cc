#include "layer_stack_model.h"

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/cat.h"
#include "base/number_types.h"
#include "base/system/files.h"
#include "tensor/safetensors/checkpoint.h"

namespace motley::bench {
namespace {

using lora::Projection;
using tensor::ConstTensor;

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 2654435761U + 88172645463325252U) {}

  std::uint32_t bits() {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::uint32_t>(state_ >> 33);
  }
  float between(float low, float high) {
    return low + (high - low) * static_cast<float>(bits() & 0xFFFFFFU) / 16777216.0F;
  }

 private:
  std::uint64_t state_;
};

// Tensors of a file. Their numbers are pieces of a few random blocks, each from a place of its own;
// in the file every tensor has bytes of its own.
class Tensors {
 public:
  Tensors() {
    Random random(1);
    for (bf16& number : weights_) number = bf16::from(random.between(-0.03F, 0.03F));
    for (std::uint32_t& word : codes_) word = random.bits() * 2 + (random.bits() & 1);
    for (bf16& number : scales_) number = bf16::from(random.between(0.002F, 0.004F));
    std::ranges::fill(ones_, bf16::from(1));
  }

  void weight(const std::string& module, std::int64_t out, std::int64_t in) {
    add(module + ".weight", DType::bf16, weights_, {out, in});
  }
  void norm(const std::string& module, std::int64_t width) {
    add(module + ".weight", DType::bf16, ones_, {width});
  }
  void int4(const std::string& module, std::int64_t out, std::int64_t in) {
    add(module + ".weight_packed", DType::i32, codes_, {out, in / 8});
    add(module + ".weight_scale", DType::bf16, scales_, {out, in / group});
    sizes_.push_back(std::make_unique<std::array<std::int64_t, 2>>(std::array{out, in}));
    tensors_.push_back(
        {module + ".weight_shape",
         ConstTensor(reinterpret_cast<const std::byte*>(sizes_.back()->data()), DType::i64, {2})});
  }
  std::span<const tensor::NamedTensor> all() const { return tensors_; }

 private:
  template <class T>
  void add(std::string name, DType dtype, const std::vector<T>& block, const tensor::Shape& shape) {
    const auto count = static_cast<std::size_t>(shape.elements());
    const std::size_t room = block.size() - count;
    const std::size_t at = room == 0 ? 0 : tensors_.size() * 4096 * 37 % room;
    tensors_.push_back(
        {std::move(name),
         ConstTensor(reinterpret_cast<const std::byte*>(block.data() + at), dtype, shape)});
  }

  std::vector<bf16> weights_ = std::vector<bf16>(32 << 20);
  std::vector<std::uint32_t> codes_ = std::vector<std::uint32_t>(8 << 20);
  std::vector<bf16> scales_ = std::vector<bf16>(1 << 20);
  std::vector<bf16> ones_ = std::vector<bf16>(1 << 16);
  std::vector<std::unique_ptr<std::array<std::int64_t, 2>>> sizes_;
  std::vector<tensor::NamedTensor> tensors_;
};

std::string config_json(const Shape& shape, ExpertFormat format) {
  std::string quantization;
  if (format == ExpertFormat::w4a16) {
    quantization = cat(
        R"(, "quantization_config": {"quant_method": "compressed-tensors", "format": )",
        R"("pack-quantized", "config_groups": {"group_0": {"targets": ["Linear"], "weights": )",
        R"({"num_bits": 4, "type": "int", "symmetric": true, "strategy": "group", "group_size": )",
        group, R"(}}}, "ignore": ["lm_head", "re:.*self_attn.*", "re:.*mlp.gate$"]})");
  }
  return cat(R"({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", )",
             R"("hidden_act": "silu", "attention_bias": false, "rms_norm_eps": 1e-6, )",
             R"("rope_theta": 1000000.0, "tie_word_embeddings": false, "norm_topk_prob": true, )",
             R"("decoder_sparse_step": 1, "mlp_only_layers": [], "intermediate_size": 6144, )",
             R"("max_position_embeddings": 40960, "hidden_size": )", shape.hidden,
             R"(, "moe_intermediate_size": )", shape.intermediate, R"(, "num_experts": )",
             shape.experts, R"(, "num_experts_per_tok": )", shape.top_k,
             R"(, "num_hidden_layers": )", shape.layers, R"(, "num_attention_heads": )",
             shape.heads, R"(, "num_key_value_heads": )", shape.kv_heads, R"(, "head_dim": )",
             shape.head_dim, R"(, "vocab_size": )", shape.vocabulary, quantization, "}\n");
}

lora::Factors add_factors(lora::Adapter& adapter, Random& random, std::int64_t in, std::int64_t out,
                          int rank) {
  const auto matrix = [&](std::int64_t rows, std::int64_t columns) {
    std::vector<float> values(static_cast<std::size_t>(rows * columns));
    for (float& value : values) value = random.between(-0.02F, 0.02F);
    adapter.matrices.push_back({.rows = rows, .columns = columns, .values = std::move(values)});
    return static_cast<int>(adapter.matrices.size()) - 1;
  };
  const int a = matrix(rank, in);
  const int b = matrix(out, rank);
  return {.a = a, .b = b, .rank = rank, .scale = 1.0F};
}

}  // namespace

std::int64_t expert_bytes(const Shape& shape, ExpertFormat format) {
  const std::int64_t numbers = shape.expert_numbers();
  // Scales are float32 in memory.
  return format == ExpertFormat::bf16 ? numbers * 2 : numbers / 2 + numbers / group * 4;
}

Result<void> write_model(const std::filesystem::path& folder, const Shape& shape,
                         ExpertFormat format) {
  Tensors tensors;
  tensors.weight("model.embed_tokens", shape.vocabulary, shape.hidden);
  tensors.weight("lm_head", shape.vocabulary, shape.hidden);
  tensors.norm("model.norm", shape.hidden);
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    const std::string prefix = cat("model.layers.", layer, ".");
    tensors.norm(prefix + "input_layernorm", shape.hidden);
    tensors.norm(prefix + "post_attention_layernorm", shape.hidden);
    tensors.weight(prefix + "self_attn.q_proj", shape.q_width(), shape.hidden);
    tensors.weight(prefix + "self_attn.k_proj", shape.kv_width(), shape.hidden);
    tensors.weight(prefix + "self_attn.v_proj", shape.kv_width(), shape.hidden);
    tensors.weight(prefix + "self_attn.o_proj", shape.hidden, shape.q_width());
    tensors.norm(prefix + "self_attn.q_norm", shape.head_dim);
    tensors.norm(prefix + "self_attn.k_norm", shape.head_dim);
    tensors.weight(prefix + "mlp.gate", shape.experts, shape.hidden);
    for (std::int64_t expert = 0; expert < shape.experts; ++expert) {
      const auto matrix = [&](std::string_view name, std::int64_t out, std::int64_t in) {
        const std::string module = cat(prefix, "mlp.experts.", expert, ".", name);
        if (format == ExpertFormat::bf16) {
          tensors.weight(module, out, in);
        } else {
          tensors.int4(module, out, in);
        }
      };
      matrix("gate_proj", shape.intermediate, shape.hidden);
      matrix("up_proj", shape.intermediate, shape.hidden);
      matrix("down_proj", shape.hidden, shape.intermediate);
    }
  }
  MOTLEY_TRY_VOID(tensor::write_checkpoint(folder, "model", tensors.all(), std::uint64_t{4} << 30));
  // Last, so that a folder with a config is whole.
  MOTLEY_TRY(AtomicFile file, AtomicFile::create(folder / "config.json"));
  MOTLEY_TRY_VOID(file.write(config_json(shape, format)));
  return file.commit();
}

lora::Adapter make_adapter(const Shape& shape, int rank, std::uint64_t seed) {
  Random random(seed);
  lora::Adapter adapter;
  adapter.largest_rank = rank;
  for (std::int32_t layer = 0; layer < shape.layers; ++layer) {
    const auto add = [&](Projection projection, std::int64_t in, std::int64_t out,
                         std::int64_t experts) {
      lora::SiteDelta delta{.site = {layer, projection}, .in = in, .out = out};
      for (std::int64_t expert = 0; expert < experts; ++expert)
        delta.factors.push_back(add_factors(adapter, random, in, out, rank));
      adapter.sites.push_back(std::move(delta));
    };
    add(Projection::q, shape.hidden, shape.q_width(), 1);
    add(Projection::k, shape.hidden, shape.kv_width(), 1);
    add(Projection::v, shape.hidden, shape.kv_width(), 1);
    add(Projection::o, shape.q_width(), shape.hidden, 1);
    add(Projection::expert_gate, shape.hidden, shape.intermediate, shape.experts);
    add(Projection::expert_up, shape.hidden, shape.intermediate, shape.experts);
    add(Projection::expert_down, shape.intermediate, shape.hidden, shape.experts);
  }
  adapter.version = lora::hash_content(adapter);
  return adapter;
}

std::int64_t adapter_expert_numbers(const Shape& shape, std::int64_t rank) {
  return 3 * rank * (shape.hidden + shape.intermediate);
}

std::int64_t adapter_dense_numbers(const Shape& shape, std::int64_t rank) {
  return rank * (2 * (shape.hidden + shape.q_width()) + 2 * (shape.hidden + shape.kv_width()));
}

}  // namespace motley::bench
