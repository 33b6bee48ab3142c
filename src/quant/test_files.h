#pragma once

#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "quant/load.h"
#include "tensor/device/cpu_device.h"

// Tensors of a checkpoint that tests write, and weights that are read from them.
namespace motley::quant {

// Tensors by name, each at an odd byte as a file may have it.
class Files {
 public:
  template <class T>
  void add(const std::string& name, DType dtype, const tensor::Shape& shape,
           const std::vector<T>& values) {
    std::vector<std::byte>& bytes = bytes_[name];
    bytes.resize(1 + values.size() * sizeof(T));
    std::memcpy(bytes.data() + 1, values.data(), values.size() * sizeof(T));
    tensors_[name] = tensor::ConstTensor(bytes.data() + 1, dtype, shape);
  }
  void remove(const std::string& name) { tensors_.erase(name); }

  std::optional<tensor::ConstTensor> operator()(std::string_view name) const {
    const auto found = tensors_.find(std::string(name));
    if (found == tensors_.end()) return std::nullopt;
    return found->second;
  }

 private:
  std::map<std::string, std::vector<std::byte>> bytes_;
  std::map<std::string, tensor::ConstTensor> tensors_;
};

// From the text of a quantization_config.
inline Result<Config> read_config(std::string_view quantization) {
  const json::Value value =
      json::parse(cat(R"({"quantization_config": )", quantization, "}"), "config.json").value();
  return Config::read(*value.if_object());
}

inline Config config(std::string_view quantization) { return read_config(quantization).value(); }

inline void expect_refused(std::string_view quantization, std::string_view place,
                           std::string_view reason) {
  const Result<Config> config = read_config(quantization);
  ASSERT_FALSE(config.ok()) << quantization;
  const std::string message = config.error().message();
  EXPECT_NE(message.find(place), std::string::npos) << message;
  EXPECT_NE(message.find(reason), std::string::npos) << message;
}

// Loads modules of "m" from such tensors.
class LoadTest : public testing::Test {
 protected:
  Result<LoadedWeight> load(const Config& of, TrueSize size, std::string_view module = "m") {
    const Files& files = files_;
    const auto lookup = [&](std::string_view name) { return files(name); };
    return load_weight(of,
                       {.lookup = lookup, .module = module, .size = size, .allocator = device_});
  }
  // What the weight's numbers mean, row by row.
  std::vector<float> numbers(const Config& of, TrueSize size) {
    const auto loaded = load(of, size);
    if (!loaded.ok()) {
      ADD_FAILURE() << loaded.error().message();
      return {};
    }
    std::vector<float> all(static_cast<std::size_t>(size.out * size.in));
    loaded->weight.decode(0, size.out, all.data());
    return all;
  }
  void expect_error(const Config& of, TrueSize size, std::string_view tensor,
                    std::string_view reason) {
    const auto loaded = load(of, size);
    ASSERT_FALSE(loaded.ok()) << tensor;
    const std::string message = loaded.error().message();
    EXPECT_NE(message.find(tensor), std::string::npos) << message;
    EXPECT_NE(message.find(reason), std::string::npos) << message;
  }

  Files files_;
  tensor::CpuDevice device_{{.threads = 1}};
};

}  // namespace motley::quant
