#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/function_ref.h"
#include "base/result.h"
#include "base/system/clock.h"
#include "base/system/stream_handle.h"
#include "kernels/collectives.h"

// What ranks on GPUs compute of each other's numbers where a library moves them (dist::NcclRanks).
// A rank's part is staged in its own memory, the library brings those of the others, and they are
// added from there in order of ranks, with the roundings of sum_over_peers().
namespace motley::kernels {

enum class RankCall : std::uint8_t { sum, maxima, scattered_sum, gather, broadcast, barrier };

// How far a rank's GPU is. Calls are counted on the GPU, so that a graph that is launched again
// counts on; kernels at both ends of a call write its number and kind to the host's memory.
struct CallWords {
  std::uint32_t* count = nullptr;  // in the GPU's memory
  std::uint32_t* begun = nullptr;
  std::uint32_t* ended = nullptr;
};
inline constexpr std::uint32_t rank_calls = 8;  // a word is the number * rank_calls + the kind

// The end of a call that a kernel is at, if any.
struct CallMark {
  enum class End : std::uint8_t { none, begin, end };
  CallWords words = {};
  RankCall call = RankCall::sum;
  End end = End::none;
};

// One rank's memory. Both buffers have as many bytes, and are aligned to 256.
struct Staging {
  std::byte* own = nullptr;     // of this rank's numbers, and of what an all-gather brings
  std::byte* others = nullptr;  // of others' parts of this rank's piece
  std::int64_t bytes = 0;
  CallWords words = {};
};

// to = x as it crosses. Without a part: what adds nothing, or is no maximum.
struct StagedPart {
  const float* x = nullptr;
  std::int64_t count = 0;
  bool has_part = true;
  bool of_maxima = false;
  DType crosses = DType::f32;
  void* to = nullptr;  // has room for whole vec4s
};

// out = what the parts of all ranks come to, as it crosses. It may be one of the parts.
struct JoinedParts {
  const void* parts[max_peers]{};  // as they cross, in order of ranks
  int ranks = 1;
  std::int64_t count = 0;
  bool maxima = false;  // of the parts, else their sum
  DType crosses = DType::f32;
  DType out_type = DType::f32;
  void* out = nullptr;
};

// Staged columns of all ranks, rank r's `apart` numbers behind those of rank 0, in rows of
// `widest`.
struct StagedColumns {
  std::int64_t rows = 0;
  std::int64_t widest = 0;
  std::int64_t apart = 0;
  int ranks = 1;
  std::int64_t begin[max_peers + 1]{};  // rank r has columns [begin[r], begin[r + 1])
  float* staged = nullptr;
};

namespace cuda {

// Each marks its end of the call, also where it has no numbers.
void stage_part(const StagedPart& p, const CallMark& mark, StreamHandle stream);
void join_parts(const JoinedParts& p, const CallMark& mark, StreamHandle stream);
// This rank's columns.
void stage_columns(const StagedColumns& p, int rank, const float* own, std::int64_t own_stride,
                   const CallMark& mark, StreamHandle stream);
// The columns of all ranks; without an out nothing.
void unstage_columns(const StagedColumns& p, float* out, std::int64_t out_stride,
                     const CallMark& mark, StreamHandle stream);
void mark_call(const CallMark& mark, StreamHandle stream);

// Why these GPUs can't all address each other's memory; empty if they can, or if one is not there.
std::string why_not_peers(const std::vector<int>& gpus);

// The ranks' staging memory, and how far their GPUs are.
class StagingMemory {
 public:
  struct Options {
    std::vector<int> gpus;  // of each rank, a different one
    std::int64_t bytes = 0;
  };
  static Result<std::unique_ptr<StagingMemory>> create(const Options& options);
  StagingMemory() = default;
  StagingMemory(const StagingMemory&) = delete;
  StagingMemory& operator=(const StagingMemory&) = delete;
  // No call may be queued.
  virtual ~StagingMemory() = default;

  virtual Staging view(int rank) const = 0;
  // The words of the rank's last call.
  struct Progress {
    std::uint32_t begun = 0;
    std::uint32_t ended = 0;
  };
  virtual Progress progress(int rank) const = 0;
  // Calls queue with a stream of each rank, and waits for what it has queued, at most max_wait.
  using Queue = FunctionRef<Result<void>(const std::vector<StreamHandle>& streams)>;
  virtual Result<void> try_streams(Queue queue, Duration max_wait) = 0;
};

}  // namespace cuda
}  // namespace motley::kernels
