// Reads the input as a quantization_config with the tensors of one module, and loads the module's
// weight. What is accepted decodes from end to end; what is refused gets a message of one line.
//
//   {"quantization_config": {...}, "size": [out, in], "tensors": {"weight_packed": ["I32", [4,
//   8]]}}
//
// followed by a zero byte and the bytes that fill the tensors, over and over.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/cat.h"
#include "base/check.h"
#include "quant/formats.h"
#include "quant/load.h"
#include "tensor/device/cpu_device.h"

namespace {

using motley::DType;
using motley::tensor::ConstTensor;
using motley::tensor::Shape;

constexpr std::int64_t largest_size = 512;
constexpr std::int64_t largest_tensor = std::int64_t{1} << 18;  // bytes

// The tensors, each in memory of exactly its size, so that a byte too far is seen.
class Tensors {
 public:
  bool add(const std::string& name, const motley::json::Value& value, std::string_view filling) {
    const motley::json::Array* const entry = value.if_array();
    if (entry == nullptr || entry->size() != 2) return false;
    const std::string* const type_name = (*entry)[0].if_string();
    const motley::json::Array* const sizes = (*entry)[1].if_array();
    if (type_name == nullptr || sizes == nullptr || sizes->size() > 3) return false;
    const std::optional<DType> type = motley::dtype_from_name(*type_name);
    if (!type) return false;
    std::vector<std::int64_t> lengths;
    for (const motley::json::Value& size : *sizes) {
      const std::int64_t* const length = size.if_integer();
      if (length == nullptr || *length > largest_tensor) return false;
      lengths.push_back(*length);
    }
    const auto shape = Shape::make(lengths);
    if (!shape.ok() || shape->elements() > largest_tensor) return false;
    const auto bytes = motley::bytes_of(*type, shape->elements());
    if (!bytes || *bytes > largest_tensor) return false;
    std::vector<std::byte>& memory = memory_[name];
    memory.resize(static_cast<std::size_t>(*bytes));
    for (std::size_t i = 0; i < memory.size(); ++i)
      memory[i] =
          filling.empty() ? std::byte{0} : static_cast<std::byte>(filling[i % filling.size()]);
    tensors_[name] = ConstTensor(memory.data(), *type, *shape);
    return true;
  }

  std::optional<ConstTensor> find(std::string_view name) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) return std::nullopt;
    return found->second;
  }

 private:
  std::map<std::string, std::vector<std::byte>> memory_;
  std::map<std::string, ConstTensor, std::less<>> tensors_;
};

std::optional<motley::quant::TrueSize> read_size(const motley::json::Value* value) {
  const motley::json::Array* const both = value == nullptr ? nullptr : value->if_array();
  if (both == nullptr || both->size() != 2) return std::nullopt;
  const std::int64_t* const out = (*both)[0].if_integer();
  const std::int64_t* const in = (*both)[1].if_integer();
  if (out == nullptr || in == nullptr || *out < 1 || *in < 1 || *out > largest_size ||
      *in > largest_size)
    return std::nullopt;
  return motley::quant::TrueSize{.out = *out, .in = *in};
}

void check_message(const motley::Error& error) {
  const std::string message = error.message();
  MOTLEY_CHECK(!message.empty() && message == motley::printable(message), "one printable line");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = input.find('\0');
  if (end == std::string_view::npos) return 0;
  const std::string_view filling = input.substr(end + 1);
  const auto value = motley::json::parse(input.substr(0, end), "input");
  if (!value.ok()) return 0;
  const motley::json::Object* const object = value->if_object();
  if (object == nullptr) return 0;
  const auto config = motley::quant::Config::read(*object);
  if (!config.ok()) {
    check_message(config.error());
    return 0;
  }
  const auto true_size = read_size(object->find("size"));
  const motley::json::Value* const listed = object->find("tensors");
  if (!true_size || listed == nullptr || listed->if_object() == nullptr) return 0;
  Tensors tensors;
  for (const motley::json::Member& member : listed->if_object()->members()) {
    if (!tensors.add("m." + member.key, member.value, filling)) return 0;
  }
  motley::tensor::CpuDevice device({.threads = 1});
  const auto lookup = [&](std::string_view name) { return tensors.find(name); };
  const auto loaded = motley::quant::load_weight(
      *config, {.lookup = lookup, .module = "m", .size = *true_size, .allocator = device});
  if (!loaded.ok()) {
    check_message(loaded.error());
    return 0;
  }
  MOTLEY_CHECK(motley::quant::is_known(loaded->weight.format()), "a format that is computed with");
  for (const std::string& name : loaded->used)
    MOTLEY_CHECK(tensors.find(name).has_value(), "tensors that are there");
  std::vector<float> decoded(static_cast<std::size_t>(true_size->out * true_size->in));
  loaded->weight.decode(0, true_size->out, decoded.data());
  return 0;
}
