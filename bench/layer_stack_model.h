#pragma once

#include <cstdint>
#include <filesystem>

#include "base/result.h"
#include "lora/files/adapter.h"

// A stack of layers in the shape of a 30B-A3B, and adapters on it, all of random numbers.
namespace motley::bench {

struct Shape {
  std::int64_t layers = 0;
  std::int64_t hidden = 2048;
  std::int64_t experts = 128;
  std::int64_t top_k = 8;
  std::int64_t intermediate = 768;
  std::int64_t heads = 32;
  std::int64_t kv_heads = 4;
  std::int64_t head_dim = 128;
  // Embedding and head are there because a model has them, and kept out of what is measured.
  std::int64_t vocabulary = 1024;

  std::int64_t q_width() const { return heads * head_dim; }
  std::int64_t kv_width() const { return kv_heads * head_dim; }
  // Numbers of one expert's three matrices, and of what a layer has beside experts.
  std::int64_t expert_numbers() const { return 3 * hidden * intermediate; }
  std::int64_t dense_numbers() const { return hidden * (2 * q_width() + 2 * kv_width() + experts); }
};

// How experts are stored; everything else is bf16.
enum class ExpertFormat : std::uint8_t { bf16, w4a16 };
inline constexpr std::int64_t group = 128;  // inputs under one scale of W4A16

// Bytes that one expert takes in memory.
std::int64_t expert_bytes(const Shape& shape, ExpertFormat format);

// Writes a model folder.
Result<void> write_model(const std::filesystem::path& folder, const Shape& shape,
                         ExpertFormat format);

// Factors on q, k, v, o and on every expert's gate, up and down.
lora::Adapter make_adapter(const Shape& shape, int rank, std::uint64_t seed);
// Numbers of one expert's factors, and of a layer's factors beside experts.
std::int64_t adapter_expert_numbers(const Shape& shape, std::int64_t rank);
std::int64_t adapter_dense_numbers(const Shape& shape, std::int64_t rank);

}  // namespace motley::bench
