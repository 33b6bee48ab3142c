#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "base/dtype.h"
#include "base/result.h"
#include "base/system/stream_handle.h"
#include "dist/layout.h"
#include "kernels/elementary.h"

namespace motley::dist {

// One rank's view of a group of ranks that compute a model together. All ranks make the same calls
// in the same order. Over host memory a call returns when this rank's part is done and its
// arguments may be reused. Over GPU memory arguments are the GPU's, and a call is queued on a
// stream, always the same one; it may be captured.
//
// The first error of any rank is final for the group: from then on every call, on every rank,
// returns that error, which names the rank. A wait for the other ranks is bounded. On GPUs an error
// may come after calls have returned: status() has it once the stream has passed.
class Communicator {
 public:
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  // Replaces the numbers by their sum over ranks, which is added in order of ranks: rank 0 + rank 1
  // + ... All ranks get the same bits. A rank that has no part (a shard of no heads) adds nothing.
  enum class Part : std::uint8_t { own, none };
  struct Crossing {
    StreamHandle stream = {};  // of kernels::ElementaryTable::on(); not used over host memory
    // Between GPUs: bf16 halves what crosses; each part is rounded to it, and the sum is. Over host
    // memory numbers stay as they are.
    DType type = DType::f32;
  };
  virtual Result<void> all_reduce(std::span<float> numbers, Part part,
                                  const Crossing& crossing) = 0;

  // all_reduce of rows.add.b, which is not written, and then the rows, in one launch: with the same
  // bits. Only where fits_norm().
  virtual bool fits_norm(const kernels::AddAndNorm& /*rows*/, DType /*type*/) const {
    return false;
  }
  virtual Result<void> sum_and_norm(const kernels::AddAndNorm& /*rows*/, Part /*part*/,
                                    const Crossing& /*crossing*/) {
    MOTLEY_CHECK(false, "sums that fit one launch with their norms");
    return {};
  }

  // Replaces the numbers, of which none is negative or a NaN, by their maxima over ranks: the same
  // bits in any order. A rank without a part counts as zeros; its numbers are not read. Between
  // GPUs, too, numbers cross as they are.
  virtual Result<void> all_max(std::span<float> numbers, Part part, StreamHandle stream) = 0;

  // own = this rank's part (deal) of the sum over ranks, which is added in the same order.
  virtual Result<void> reduce_scatter(std::span<const float> numbers, std::span<float> own,
                                      StreamHandle stream) = 0;

  // Rows whose columns are dealt: each rank has some, and those that give an `out` get all.
  struct Columns {
    std::int64_t rows = 0;
    const float* own = nullptr;
    std::int64_t own_stride = 0;
    std::int64_t width = 0;  // of a whole row
    Range columns;           // of a row that this rank has: deal()'s part; may be empty
    float* out = nullptr;
    std::int64_t out_stride = 0;
    StreamHandle stream = {};
  };
  virtual Result<void> all_gather(const Columns& columns) = 0;

  // Parts of equal size, one behind the other in order of ranks: each rank has its own in place,
  // and gets the others'. Over GPU memory parts are aligned to 16 bytes, and multiples of them.
  struct Parts {
    std::byte* data = nullptr;
    std::int64_t bytes = 0;  // of each
    StreamHandle stream = {};
  };
  virtual Result<void> gather_parts(const Parts& parts) = 0;

  // Replaces the bytes by those of the root.
  virtual Result<void> broadcast(std::span<std::byte> bytes, int root, StreamHandle stream) = 0;

  virtual Result<void> barrier(StreamHandle stream) = 0;

  // This rank can't go on. Ranks that wait for it return at once.
  virtual void fail(const Error& error) = 0;
  // The group's error, if any rank has failed.
  virtual Result<void> status() const = 0;
};

// All ranks of a group, in one process.
class RankGroup {
 public:
  RankGroup() = default;
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;
  // No thread may be in a call, and no call may be queued.
  virtual ~RankGroup() = default;

  virtual int ranks() const = 0;
  // To be used by one thread at a time.
  virtual Communicator& rank(int rank) = 0;
};

}  // namespace motley::dist
