// Weights, adapters and batches for timing: random numbers straight in the kernels' packed layout.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "../graph_time.h"
#include "kernels/cuda/elementary/arrange_inputs.h"
#include "kernels/cuda/experts/grouped.h"

namespace expert_layer_bench {

using namespace motley::kernels::cuda;
using motley::kernels::AdapterTerm;
using motley::kernels::FactorEntry;

// Device memory that lives as long as the program's part that uses it.
class Memory {
 public:
  Memory() = default;
  explicit Memory(std::size_t bytes) {
    void* data = nullptr;
    CHECK_CUDA(cudaMalloc(&data, bytes));
    data_.reset(data, [](void* p) { cudaFree(p); });
  }
  template <class T>
  explicit Memory(const std::vector<T>& values) : Memory(values.size() * sizeof(T) + 16) {
    CHECK_CUDA(cudaMemcpy(data(), values.data(), values.size() * sizeof(T), cudaMemcpyDefault));
  }
  template <class T = void>
  T* data() const {
    return static_cast<T*>(data_.get());
  }

 private:
  std::shared_ptr<void> data_;
};

// An expert layer, or a rank's part of one.
struct Layer {
  ExpertShape shape{};
  int routed = 0;  // experts that tokens choose from; those behind the shape's stand elsewhere
};
inline constexpr Layer qwen{{.experts = 128, .hidden = 2048, .intermediate = 768}, 128};
// DeepSeek-V3's on one of eight ranks.
inline constexpr Layer deepseek{{.experts = 32, .hidden = 7168, .intermediate = 2048}, 256};
inline const Layer* measured = &qwen;  // what the command line names
inline constexpr int top_k = 8;

// Uniform numbers in [-unit, unit) in bf16.
void fill_random(void* out, std::size_t count, float unit, std::uint64_t seed);

struct Weights {
  PackedExperts packed;
  Memory gate_up, down;
  Memory gate_up_rows, down_rows;  // row scales
  GroupedInputs inputs;            // at both seams
  Memory each_input;
};
// `codes`: inputs are rounded to codes of the weights' type, those of FP8 by block, of INT8 by row.
Weights make_weights(ExpertFormat format, bool codes, std::uint64_t seed);
double bytes_of_expert(const PackedExperts& packed);

// What the adapters of a batch look like.
struct AdapterKind {
  int count = 0;
  std::vector<int> ranks{16};  // adapter i has ranks[i % size]
  bool only_first = false;     // nothing at down
  bool only_second = false;    // nothing at gate and up
  bool shared_outer = false;   // gate's and up's A and down's B are one for all experts
  bool f8 = false;             // pages of FP8
};

// Adapters of gate, up and down of every expert of one layer, in the packed layout
// (lora/pages/packed_layout.h).
struct Adapters {
  AdapterKind kind;
  Memory packed, tables, terms, term_begin;
  std::vector<FactorEntry> factors;  // [adapter][gate with up, down][experts]
  GroupedDeltas deltas;              // without labels

  std::size_t place(std::size_t adapter, int seam, int expert) const {
    return (adapter * 2 + static_cast<std::size_t>(seam)) * measured->shape.experts +
           static_cast<std::size_t>(expert);
  }
};
Adapters make_adapters(const AdapterKind& kind, std::uint64_t seed);

// Inputs of some layers of one batch size, uniform routing, and the buffers that they share.
struct Batch {
  std::int64_t tokens = 0;
  std::vector<std::vector<std::int32_t>> ids;  // [layer]
  std::vector<std::int32_t> labels;            // [tokens], the same in every layer
  Memory x, out, scratch, device_labels, tokens_by_label;
  std::vector<Memory> device_ids, routing_weights;

  GroupedExperts params(int layer, const Weights& weights, const Adapters* adapters) const;
  double live_experts() const;  // distinct ones, mean over the layers
  // Bytes of adapters that a layer must read, mean over the layers.
  double adapter_bytes(const Adapters& adapters) const;
};
// What the plans of some layers take; labels go round, 0: no token has one.
class PlannedBatch {
 public:
  static constexpr int tile_places = 128;
  PlannedBatch(std::int64_t tokens, int layers, int labels);
  PlanExperts params(int layer) const;
  void sort_labels(motley::StreamHandle stream) const;

 private:
  std::int64_t tokens_;
  int label_count_;
  std::vector<Memory> ids_;
  Memory labels_, by_label_;
  Memory order_, of_places_, places_, expert_begin_, tile_begin_, tiles_, piece_begin_, pieces_,
      counts_;
};
Batch make_batch(std::int64_t tokens, int layers, const Adapters* adapters, std::uint64_t seed);

}  // namespace expert_layer_bench
