// A quantised checkpoint says what a plain one of its decoded weights says, on several ranks too.
// The packing here is written from the formats' definitions and shares no code with the reader.

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/number_types.h"
#include "base/system/files.h"
#include "base/system/temporary_folder.h"
#include "score/golden_model.h"
#include "tensor/convert.h"
#include "tensor/safetensors/checkpoint.h"

namespace motley::score_tests {
namespace {

namespace fs = std::filesystem;

// A checkpoint in the making: named tensors with memory of their own.
class Checkpoint {
 public:
  void add(std::string name, DType dtype, const tensor::Shape& shape,
           std::vector<std::byte> bytes) {
    entries_.push_back({std::move(name), dtype, shape, std::move(bytes)});
  }
  template <class T>
  void add(std::string name, DType dtype, const tensor::Shape& shape,
           const std::vector<T>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    add(std::move(name), dtype, shape, std::vector<std::byte>(bytes.begin(), bytes.end()));
  }

  void write(const fs::path& folder) const {
    std::vector<tensor::NamedTensor> tensors;
    for (const Entry& entry : entries_)
      tensors.push_back(
          {entry.name, tensor::ConstTensor(entry.bytes.data(), entry.dtype, entry.shape)});
    tensor::write_checkpoint(folder, "model", tensors, UINT64_MAX).value();
  }

 private:
  struct Entry {
    std::string name;
    DType dtype;
    tensor::Shape shape;
    std::vector<std::byte> bytes;
  };
  std::vector<Entry> entries_;
};

struct Matrix {
  std::int64_t out;
  std::int64_t in;
  std::vector<float> values;

  float& at(std::int64_t o, std::int64_t k) { return values[static_cast<std::size_t>(o * in + k)]; }
};

// Writes a module's quantised tensors and leaves what they mean in the matrix.
using Pack = void (*)(const std::string& module, Matrix& matrix, Checkpoint& to);

// compressed-tensors pack-quantized: code q + 8, element k of a row at bits 4k of its stream of
// 32-bit words.
constexpr std::int64_t group = 32;
void pack_int4(const std::string& module, Matrix& matrix, Checkpoint& to) {
  const std::int64_t words = (matrix.in + 7) / 8;
  std::vector<std::uint32_t> packed(static_cast<std::size_t>(matrix.out * words));
  std::vector<float> scales;
  for (std::int64_t o = 0; o < matrix.out; ++o) {
    for (std::int64_t begin = 0; begin < matrix.in; begin += group) {
      float largest = 0;
      for (std::int64_t k = begin; k < begin + group; ++k)
        largest = std::max(largest, std::abs(matrix.at(o, k)));
      const float scale = largest / 7.0F;
      scales.push_back(scale);
      for (std::int64_t k = begin; k < begin + group; ++k) {
        const float q = std::clamp(std::round(matrix.at(o, k) / scale), -8.0F, 7.0F);
        matrix.at(o, k) = q * scale;
        const auto code = static_cast<std::uint32_t>(q + 8.0F);
        packed[static_cast<std::size_t>(o * words + k / 8)] |= code << (4 * (k % 8));
      }
    }
  }
  to.add(module + ".weight_packed", DType::i32, {matrix.out, words}, packed);
  to.add(module + ".weight_scale", DType::f32, {matrix.out, matrix.in / group}, scales);
  to.add(module + ".weight_shape", DType::i64, {2}, std::vector{matrix.out, matrix.in});
}

// FP8 with a scale for each block of 16 x 32, which divides neither side of most matrices.
constexpr std::int64_t block_rows = 16;
constexpr std::int64_t block_columns = 32;
void pack_fp8(const std::string& module, Matrix& matrix, Checkpoint& to) {
  const std::int64_t down = (matrix.out + block_rows - 1) / block_rows;
  const std::int64_t across = (matrix.in + block_columns - 1) / block_columns;
  std::vector<float> scales(static_cast<std::size_t>(down * across));
  for (std::int64_t o = 0; o < matrix.out; ++o) {
    for (std::int64_t k = 0; k < matrix.in; ++k) {
      float& scale = scales[static_cast<std::size_t>(o / block_rows * across + k / block_columns)];
      scale = std::max(scale, std::abs(matrix.at(o, k)) / 448.0F);
    }
  }
  std::vector<std::uint8_t> codes;
  for (std::int64_t o = 0; o < matrix.out; ++o) {
    for (std::int64_t k = 0; k < matrix.in; ++k) {
      const float scale =
          scales[static_cast<std::size_t>(o / block_rows * across + k / block_columns)];
      const f8_e4m3 code = f8_e4m3::from(matrix.at(o, k) / scale);
      codes.push_back(code.bits);
      matrix.at(o, k) = code.to_float() * scale;
    }
  }
  to.add(module + ".weight", DType::f8_e4m3, {matrix.out, matrix.in}, codes);
  to.add(module + ".weight_scale_inv", DType::f32, {down, across}, scales);
}

struct Method {
  const char* name;
  const char* model;
  const char* config;  // quantization_config
  Pack pack;
  // Whether a module's weight is quantised; the rest stays as it is.
  bool (*quantises)(std::string_view module);
};

bool is_linear(std::string_view module) {
  return module.find("_proj") != std::string_view::npos &&
         module.find("layers.") != std::string_view::npos;
}

const Method methods[] = {
    {"W4A16", "olmoe",
     R"({"quant_method":"compressed-tensors","format":"pack-quantized","config_groups":{"group_0":)"
     R"({"targets":["Linear"],"weights":{"num_bits":4,"type":"int","symmetric":true,)"
     R"("strategy":"group","group_size":32}}},"ignore":["lm_head","re:.*mlp.gate$","re:.*down_proj$"]})",
     pack_int4,
     [](std::string_view module) { return is_linear(module) && !module.ends_with("down_proj"); }},
    {"FP8Block", "qwen3_moe",
     R"({"quant_method":"fp8","fmt":"e4m3","activation_scheme":"dynamic","weight_block_size":[16,32]})",
     pack_fp8, is_linear},
    // Rows of a delta net's projections lie by key heads, whose rows end inside the blocks.
    {"FP8BlockByKeyHead", "qwen3_next",
     R"({"quant_method":"fp8","fmt":"e4m3","activation_scheme":"dynamic","weight_block_size":[16,32]})",
     pack_fp8, is_linear}};

// The golden's weights as float32, quantised where the method says so in one folder and decoded in
// the other.
void write_both(const Method& method, const fs::path& quantised, const fs::path& decoded) {
  const fs::path golden = goldens_folder() / method.model;
  const auto checkpoint = tensor::Checkpoint::open(golden, "model").value();
  Checkpoint packed;
  Checkpoint plain;
  for (const auto& item : checkpoint.items()) {
    const tensor::Shape& shape = item.entry->shape;
    std::vector<float> values(static_cast<std::size_t>(shape.elements()));
    tensor::widen(item.entry->dtype, item.tensor().bytes(), 0, values);
    const std::string& name = item.name();
    const std::string module = name.substr(0, name.rfind('.'));
    if (shape.rank() == 2 && name.ends_with(".weight") && method.quantises(module)) {
      Matrix matrix{.out = shape[0], .in = shape[1], .values = values};
      method.pack(module, matrix, packed);
      values = matrix.values;
    } else {
      packed.add(name, DType::f32, shape, values);
    }
    plain.add(name, DType::f32, shape, values);
  }
  packed.write(quantised);
  plain.write(decoded);

  const std::string text = read_text(golden / "config.json", 1'000'000).value();
  AtomicFile config = AtomicFile::create(decoded / "config.json").value();
  config.write(text).value();
  config.commit().value();
  json::Object with = *json::parse(text, "config").value().if_object();
  with.add("quantization_config", json::parse(method.config, "method").value());
  AtomicFile other = AtomicFile::create(quantised / "config.json").value();
  other.write(json::write(std::move(with))).value();
  other.commit().value();
}

class Quantised : public testing::TestWithParam<Method> {};

TEST_P(Quantised, SaysWhatItsDecodedWeightsSay) {
  const TemporaryFolder quantised;
  const TemporaryFolder decoded;
  write_both(GetParam(), quantised.path(), decoded.path());

  GoldenModel golden(GetParam().model, {});
  const std::vector<runner::ScoreLine> lines = golden.lines_of(cases_of(golden.golden()).front());
  // The base, and an adapter on the experts beside it: adapters see the original activations.
  for (const bool adapted : {false, true}) {
    const auto score = [&](const fs::path& folder, int ranks) {
      GoldenModel model(GetParam().model, {.folder = folder, .ranks = ranks});
      const lora::Mix mix = adapted ? model.mix({{.name = "experts"}}) : lora::Mix();
      return model.score(lines, std::vector(lines.size(), mix));
    };
    const auto wanted = score(decoded.path(), 1);
    for (const int ranks : {1, 3}) {
      const auto said = score(quantised.path(), ranks);
      for (std::size_t i = 0; i < lines.size(); ++i) {
        for (std::size_t t = 1; t < lines[i].tokens.size(); ++t)
          EXPECT_NEAR(said[i].token_logprobs[t], wanted[i].token_logprobs[t], 2e-4)
              << "line " << i << ", token " << t << ", " << ranks << " ranks";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, Quantised, testing::ValuesIn(methods),
                         [](const auto& method) { return std::string(method.param.name); });

}  // namespace
}  // namespace motley::score_tests
