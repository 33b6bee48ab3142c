#include "lora/placement.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "lora/pool.h"
#include "lora/resident.h"
#include "tensor/convert.h"

namespace motley::lora {

namespace {

using Role = Placement::Role;

std::size_t element_bytes(DType dtype) { return static_cast<std::size_t>(bits(dtype)) / 8; }

std::size_t blob_bytes(const Matrix& matrix, Role role, DType dtype) {
  const auto padded = [](std::int64_t rank) {
    return std::int64_t{padded_rank(static_cast<std::int32_t>(rank))};
  };
  const std::int64_t rows = role == Role::rows ? padded(matrix.rows) : matrix.rows;
  const std::int64_t columns = role == Role::columns ? padded(matrix.columns) : matrix.columns;
  const DType stored = role == Role::vector ? DType::f32 : dtype;
  return static_cast<std::size_t>(rows * columns) * element_bytes(stored);
}

// Pages with room left, of which only the youngest are looked at: enough to fill gaps, and the cost
// of placing a blob stays bounded.
class OpenPages {
 public:
  explicit OpenPages(Placement& placement, std::uint64_t page_bytes)
      : placement_(placement), page_bytes_(page_bytes) {}

  void place(Placement::Blob& blob) {
    const std::size_t bytes =
        (blob.bytes + Pool::blob_alignment - 1) / Pool::blob_alignment * Pool::blob_alignment;
    const auto fits = [&](const Open& open) { return open.capacity - open.used >= bytes; };
    auto found = std::ranges::find_if(open_, fits);
    if (found == open_.end()) {
      const std::uint64_t pages =
          std::max<std::uint64_t>((bytes + page_bytes_ - 1) / page_bytes_, 1);
      placement_.runs.push_back(static_cast<std::uint32_t>(pages));
      if (open_.size() == most_open) open_.erase(open_.begin());
      open_.push_back(
          {static_cast<std::uint32_t>(placement_.runs.size() - 1), 0, pages * page_bytes_});
      found = open_.end() - 1;
    }
    blob.run = found->run;
    blob.offset = found->used;
    found->used += bytes;
  }

 private:
  static constexpr std::size_t most_open = 8;
  struct Open {
    std::uint32_t run;
    std::size_t used;
    std::size_t capacity;
  };

  Placement& placement_;
  std::uint64_t page_bytes_;
  std::vector<Open> open_;
};

void write_numbers(std::span<const float> numbers, DType dtype, std::byte* to) {
  if (dtype == DType::f32) {
    std::memcpy(to, numbers.data(), numbers.size_bytes());
  } else {
    tensor::narrow(dtype, numbers, to);
  }
}

}  // namespace

std::uint64_t Placement::pages() const {
  std::uint64_t sum = 0;
  for (const std::uint32_t count : runs) sum += count;
  return sum;
}

Placement place_blobs(const Adapter& adapter, DType dtype, std::uint64_t page_bytes) {
  Placement placement;
  placement.blobs.resize(adapter.matrices.size());
  OpenPages open(placement, page_bytes);
  const auto place = [&](int index, Role role) {
    if (index < 0) return;
    Placement::Blob& blob = placement.blobs[static_cast<std::size_t>(index)];
    if (blob.role != Role::unused) {
      MOTLEY_CHECK(blob.role == role, "what is shared has one role");
      return;
    }
    blob.role = role;
    blob.bytes = blob_bytes(adapter.matrices[static_cast<std::size_t>(index)], role, dtype);
    open.place(blob);
  };
  for (const SiteDelta& delta : adapter.sites) {
    const bool embedding = delta.site.projection == Projection::embed;
    for (const Factors& factors : delta.factors) {
      place(factors.a, embedding ? Role::columns : Role::rows);
      place(factors.b, Role::columns);
    }
    for (const int index : {delta.lora_bias, delta.gain, delta.replaced_bias})
      place(index, Role::vector);
    place(delta.replaced, Role::table);
  }
  return placement;
}

void write_blobs(const Adapter& adapter, const Placement& placement, DType dtype,
                 std::span<std::byte* const> bases) {
  for (std::size_t i = 0; i < placement.blobs.size(); ++i) {
    const Placement::Blob& blob = placement.blobs[i];
    if (blob.role == Role::unused) continue;
    const Matrix& matrix = adapter.matrices[i];
    std::byte* const to = bases[blob.run] + blob.offset;
    if (blob.role == Role::columns) {
      const auto padded =
          static_cast<std::size_t>(padded_rank(static_cast<std::int32_t>(matrix.columns)));
      const auto columns = static_cast<std::size_t>(matrix.columns);
      std::memset(to, 0, blob.bytes);
      for (std::int64_t row = 0; row < matrix.rows; ++row) {
        write_numbers({matrix.row(row), columns}, dtype,
                      to + static_cast<std::size_t>(row) * padded * element_bytes(dtype));
      }
      continue;
    }
    const DType stored = blob.role == Role::vector ? DType::f32 : dtype;
    const std::size_t written = matrix.values.size() * element_bytes(stored);
    write_numbers(matrix.values, stored, to);
    std::memset(to + written, 0, blob.bytes - written);
  }
}

void Resident::describe(const Adapter& adapter, const Placement& placement,
                        std::span<std::byte* const> bases) {
  const auto address = [&](int index) -> const std::byte* {
    if (index < 0) return nullptr;
    const Placement::Blob& blob = placement.blobs[static_cast<std::size_t>(index)];
    return bases[blob.run] + blob.offset;
  };
  const auto vector = [&](int index) { return reinterpret_cast<const float*>(address(index)); };
  largest_rank_ = adapter.largest_rank;
  exclusive_ = exclusive_reason(adapter);
  std::size_t count = 0;
  for (const SiteDelta& delta : adapter.sites) count += delta.factors.size();
  factors_.reserve(count);  // views point into it
  for (const SiteDelta& delta : adapter.sites) {
    const std::size_t first = factors_.size();
    for (const Factors& factors : delta.factors) {
      FactorView view;
      if (factors.present()) {
        view = {address(factors.a), address(factors.b), factors.rank, padded_rank(factors.rank),
                factors.scale};
      }
      factors_.push_back(view);
    }
    const auto at = static_cast<std::size_t>(delta.site.layer + 1) * projection_count +
                    static_cast<std::size_t>(delta.site.projection);
    if (place_.size() <= at) place_.resize(at + 1, -1);
    place_[at] = static_cast<std::int32_t>(sites_.size());
    sites_.push_back({delta.site, delta.in, delta.out,
                      std::span(factors_).subspan(first, delta.factors.size()),
                      vector(delta.lora_bias), vector(delta.gain), address(delta.replaced),
                      vector(delta.replaced_bias)});
  }
}

}  // namespace motley::lora
