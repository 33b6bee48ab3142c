#include "wide/decoded.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/system/files.h"
#include "model/weights/weight_source.h"
#include "quant/config.h"
#include "tensor/device/device.h"
#include "tensor/safetensors/checkpoint.h"

namespace motley::wide_tests {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view suffix = ".weight";

std::vector<float> decode(const quant::Weight& weight) {
  std::vector<float> numbers(static_cast<std::size_t>(weight.out() * weight.in()));
  weight.decode(0, weight.out(), numbers.data());
  return numbers;
}

// gpt-oss's experts as released: blocks of 32 inputs, [E, out, in / 32, 16].
quant::Weight blocks_of_all_experts(const tensor::Checkpoint& checkpoint, const std::string& name,
                                    const tensor::Shape& shape) {
  return quant::Weight({.format = {.element = DType::f4,
                                   .bits = 4,
                                   .scales = quant::Format::Scales::group,
                                   .block_columns = 32,
                                   .scale_type = DType::f8_e8m0},
                        .size = {.out = shape[0] * shape[2], .in = shape[1]},
                        .data = checkpoint.find(name + "_blocks")->tensor().bytes(),
                        .scales = checkpoint.find(name + "_scales")->tensor().bytes()});
}

// [E, out, in] as [E, in, out].
std::vector<float> with_columns_first(const std::vector<float>& rows, const tensor::Shape& shape) {
  const auto in = static_cast<std::size_t>(shape[1]);
  const auto out = static_cast<std::size_t>(shape[2]);
  std::vector<float> columns(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::size_t row = i / in;
    columns[((row / out) * in + i % in) * out + row % out] = rows[i];
  }
  return columns;
}

// A plain tensor by its name: a module's weight [out, in], or fused experts [E, in, out].
std::vector<float> decode(const tensor::Checkpoint& checkpoint, model::WeightSource& source,
                          const std::string& name, const tensor::Shape& shape) {
  if (shape.rank() == 3)
    return with_columns_first(decode(blocks_of_all_experts(checkpoint, name, shape)), shape);
  const std::string module = name.substr(0, name.size() - suffix.size());
  return decode(source.matrix(module, {.out = shape[0], .in = shape[1]}).value());
}

json::Object without_quantization(const json::Object& config) {
  json::Object plain;
  for (const json::Member& member : config.members()) {
    if (member.key != "quantization_config") plain.add(member.key, member.value);
  }
  return plain;
}

}  // namespace

void write_decoded(const WideGolden& golden, const fs::path& stored, const fs::path& to) {
  const json::Object& config = *golden.checkpoint.config.if_object();
  const auto quantization = quant::Config::read(config).value();
  const auto checkpoint = tensor::Checkpoint::open(stored, "model").value();
  const auto cpu = tensor::open_device({.kind = tensor::DeviceChoice::Kind::cpu}).value();
  model::WeightSource source(checkpoint, quantization, {.host = *cpu, .device = *cpu});

  std::vector<std::vector<float>> memory;
  std::vector<tensor::NamedTensor> tensors;
  for (const Recipe& recipe : golden.checkpoint.tensors) {
    if (recipe.part) continue;
    for (const std::string& name : recipe.names())
      tensors.push_back({.name = name, .tensor = checkpoint.find(name)->tensor()});
  }
  for (const Recipe& recipe : golden.decoded) {
    for (const std::string& name : recipe.names()) {
      const std::vector<float>& numbers =
          memory.emplace_back(decode(checkpoint, source, name, recipe.shape));
      tensors.push_back(
          {.name = name,
           .tensor = tensor::ConstTensor(reinterpret_cast<const std::byte*>(numbers.data()),
                                         DType::f32, recipe.shape)});
    }
  }
  std::ranges::sort(tensors, {}, &tensor::NamedTensor::name);
  tensor::write_checkpoint(to, "model", tensors, max_shard_bytes).value();
  write_config(without_quantization(config), to / "config.json");
}

}  // namespace motley::wide_tests
