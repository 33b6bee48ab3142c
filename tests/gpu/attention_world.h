#pragma once

#include <cstdint>
#include <vector>

#include "base/number_types.h"
#include "gpu/device_memory.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/attention_kernels.h"

// Sequences with keys and values in pages of the GPU, and their attention by the CPU's entry.
namespace motley::gpu_tests {

struct AttentionCase {
  std::int64_t heads = 8;
  std::int64_t kv_heads = 2;
  std::int64_t key_width = 128;
  std::int64_t value_width = 128;
  DType kv_type = DType::bf16;
  DType q_type = DType::f32;
  DType out_type = DType::f32;
  std::int64_t window = 0;
  bool sinks = false;
  bool gated = false;  // a head's query and its gate side by side
  bool values_in_keys = false;
  // Keys and values are numbers that codes hold, whatever type their pages have: in f8_e4m3 nothing
  // more is rounded. Of latents the columns behind the values are bf16's.
  bool code_numbers = false;
  float key_scale = 0;  // fixed ones, of codes
  float value_scale = 0;
  std::int64_t shared_width = 0;  // last columns of keys that all kv heads have in common
  std::int64_t page_tokens = 16;
  std::vector<std::int64_t> lengths = {1, 70, 300};
};

// Positions [begin, end) of a sequence; none where they are equal.
struct AttentionPiece {
  std::size_t sequence = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

struct AttentionRun {
  bool batch_invariant = false;
  bool scratch = true;
  bool plain = false;
  const kernels::cuda::AttentionKernel* kernel = nullptr;  // null: as they are chosen
  std::int64_t more_rows = 3;                              // of the launch that no sequence has
  std::size_t skipped = 0;    // first pieces that are no sequences of the launch; their rows are
  std::int64_t max_rows = 0;  // of a sequence; 0: as it is
};

// Each weight of a mean is rounded to bf16 by itself, by 1.1e-3 of itself in the root mean square.
// These errors are independent and add up as the values do, so a head's row is off by about as much
// of its own norm, however many positions it averages and however small that makes it; once more
// where it is stored in bf16. A single large weight is off by up to 2^-9, and so is its rounded
// sum.
inline constexpr double largest_relative_error = 4e-3;

// |got - want| / |want| over a head's row of `width` numbers, at worst; infinite where got has NaN,
// or numbers where there should be none.
double relative_error_of_heads(const std::vector<float>& got, const std::vector<float>& want,
                               std::int64_t width);

class AttentionWorld {
 public:
  AttentionWorld(const AttentionCase& shape, std::uint64_t seed);

  // The rows of the pieces that were not skipped, one after the other: [rows, heads, value_width].
  // Fails the test where something else was written.
  std::vector<float> run(const std::vector<AttentionPiece>& pieces, const AttentionRun& how);
  // The same from the CPU.
  std::vector<float> expected(const std::vector<AttentionPiece>& pieces) const;

  std::vector<AttentionPiece> whole() const;  // every position
  std::vector<AttentionPiece> last() const;   // the last one of each

 private:
  // Keys or values in memory of the device, as the runner lays pages out.
  struct Stored {
    std::byte* data;
    std::int64_t heads;
    std::int64_t width;  // with the tail
    std::int64_t tail;
    float scale;
  };
  Stored stored_keys() const;
  Stored stored_shared_keys() const;
  Stored stored_values() const;
  std::int64_t page_bytes(const Stored& stored) const;
  kernels::Pages pages_of(const Stored& stored) const;
  kernels::PagedTail tail_of(const Stored& stored) const;
  std::vector<float> gates_of(const std::vector<AttentionPiece>& pieces) const;
  bool coded() const { return shape_.kv_type == DType::f8_e4m3; }
  // Of a latent kept as codes: what is no value.
  std::int64_t tail_width() const {
    return shape_.values_in_keys ? shape_.key_width - shape_.value_width : 0;
  }
  void round_to_codes();
  void fill_pages();

  AttentionCase shape_;
  std::int64_t table_stride_ = 0;
  std::int64_t pages_ = 0;
  std::vector<std::int32_t> table_;  // of every sequence
  std::vector<std::int64_t> first_;  // of each sequence in the arrays below
  // Every position of every sequence, f32 with values that bf16 holds.
  std::vector<float> queries_, gates_, keys_, values_;
  std::vector<float> sinks_;
  DeviceArray<std::byte> device_keys_, device_shared_keys_, device_values_;
  DeviceArray<float> device_sinks_;
  DeviceArray<float> partials_;
  DeviceArray<std::int32_t> counters_;
};

}  // namespace motley::gpu_tests
