#include "lora/pages/placement.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/check.h"

namespace motley::lora {
namespace {

using Blob = Placement::Blob;
using Role = Placement::Role;

// Pages with free space. Only the newest are considered: enough to fill gaps, at a bounded cost per
// blob.
class OpenPages {
 public:
  explicit OpenPages(Placement& placement) : placement_(placement) {}

  void place(Blob& blob) {
    const std::size_t bytes = (blob.bytes + blob_alignment - 1) / blob_alignment * blob_alignment;
    const auto fits = [&](const Open& open) { return open.capacity - open.used >= bytes; };
    auto found = std::ranges::find_if(open_, fits);
    if (found == open_.end()) {
      const std::uint64_t page_bytes = placement_.page_bytes;
      const std::uint64_t pages = std::max<std::uint64_t>((bytes + page_bytes - 1) / page_bytes, 1);
      placement_.runs.push_back(static_cast<std::uint32_t>(pages));
      if (open_.size() == max_open) open_.erase(open_.begin());
      open_.push_back(
          {static_cast<std::uint32_t>(placement_.runs.size() - 1), 0, pages * page_bytes});
      found = open_.end() - 1;
    }
    blob.run = found->run;
    blob.offset = found->used;
    found->used += bytes;
  }

 private:
  static constexpr std::size_t max_open = 8;
  struct Open {
    std::uint32_t run;
    std::size_t used;
    std::size_t capacity;
  };

  Placement& placement_;
  std::vector<Open> open_;
};

class Placer {
 public:
  Placer(const Adapter& adapter, Placement& placement)
      : adapter_(adapter), placement_(placement), open_(placement) {
    placement.sites = adapter.sites;
    placement.blob_of_matrix.assign(adapter.matrices.size(), -1);
  }

  void place() {
    for (std::size_t at = 0; at < adapter_.sites.size(); ++at) {
      const SiteDelta& delta = adapter_.sites[at];
      const bool packed = placement_.is_packed(delta.site);
      if (!packed) place_rows(delta);
      place_matrix(delta.lora_bias, Role::vector);
      place_matrix(delta.gain, Role::vector);
      place_matrix(delta.replaced, Role::table);
      place_matrix(delta.replaced_bias, Role::vector);
      if (packed) place_seam(static_cast<std::int32_t>(at));
    }
  }

 private:
  const Matrix& matrix(std::int32_t index) const {
    return adapter_.matrices[static_cast<std::size_t>(index)];
  }

  std::int32_t put(Blob blob, std::int64_t numbers, std::int64_t rows, DType dtype, bool scaled) {
    blob.numbers = static_cast<std::size_t>(bytes_of(dtype, numbers).value());
    blob.bytes = blob.numbers;
    if (scaled) {
      blob.numbers = (blob.numbers + 15) / 16 * 16;
      blob.bytes = blob.numbers + static_cast<std::size_t>(rows) * sizeof(float);
    }
    open_.place(blob);
    placement_.blobs.push_back(blob);
    return static_cast<std::int32_t>(placement_.blobs.size()) - 1;
  }

  void place_rows(const SiteDelta& delta) {
    const bool embedding = delta.site.projection == Projection::embed;
    for (const Factors& factors : delta.factors) {
      if (!factors.present()) continue;
      place_matrix(factors.a, embedding ? Role::columns : Role::rows);
      place_matrix(factors.b, Role::columns);
    }
  }

  // A shared matrix is placed once.
  void place_matrix(std::int32_t index, Role role) {
    if (index < 0) return;
    std::int32_t& at = placement_.blob_of_matrix[static_cast<std::size_t>(index)];
    if (at >= 0) {
      MOTLEY_CHECK(placement_.blobs[static_cast<std::size_t>(at)].role == role,
                   "what is shared has one role");
      return;
    }
    const PageFormat& format = placement_.format;
    const auto padded = [&](std::int64_t rank) {
      return std::int64_t{padded_rank(static_cast<std::int32_t>(rank), format.dtype)};
    };
    const Matrix& from = matrix(index);
    const std::int64_t rows = role == Role::rows ? padded(from.rows) : from.rows;
    const std::int64_t columns = role == Role::columns ? padded(from.columns) : from.columns;
    const bool factor = role == Role::rows || role == Role::columns;
    const DType dtype = factor                 ? format.dtype
                        : role == Role::vector ? DType::f32
                                               : format.table_dtype();
    at =
        put({.role = role, .first = index}, rows * columns, rows, dtype, factor && format.scaled());
  }

  // The seam of an expert site, placed at the first of its sites: gate comes before up.
  void place_seam(std::int32_t at) {
    const Site site = adapter_.sites[static_cast<std::size_t>(at)].site;
    const auto has_next = [&](Projection projection) {
      const std::size_t next = static_cast<std::size_t>(at) + 1;
      return next < adapter_.sites.size() &&
             adapter_.sites[next].site == Site{site.layer, projection};
    };
    Placement::Seam seam{.layer = site.layer, .packed = placement_.packed.size()};
    if (site.projection == Projection::expert_down) {
      seam.seam = 1;
      seam.first_site = at;
    } else if (site.projection == Projection::expert_gate) {
      seam.first_site = at;
      if (has_next(Projection::expert_up)) seam.second_site = at + 1;
    } else {
      const bool has_gate = at > 0 && adapter_.sites[static_cast<std::size_t>(at) - 1].site ==
                                          Site{site.layer, Projection::expert_gate};
      if (has_gate) return;
      seam.second_site = at;
    }
    placement_.seams.push_back(seam);
    for (std::size_t expert = 0; expert < placement_.experts(seam); ++expert)
      placement_.packed.push_back(place_packed(placement_.joined(seam, expert), seam.seam == 0));
  }

  std::array<std::int32_t, 2> place_packed(const JoinedFactors& factors, bool alternating) {
    if (!factors.present()) return {-1, -1};
    const Factors& first = factors.first;
    const Factors& second = factors.second;
    const bool shared = factors.shared();
    const std::int32_t columns = factors.columns();
    const std::int32_t a = place_packed({.role = Role::packed_a,
                                         .first = first.present() ? first.a : -1,
                                         .second = second.present() && !shared ? second.a : -1,
                                         .second_column = factors.split(),
                                         .columns = columns});
    const std::int32_t b =
        place_packed({.role = alternating ? Role::packed_gate_up : Role::packed_b,
                      .first = first.present() ? first.b : -1,
                      .second = second.present() ? second.b : -1,
                      .second_column = shared ? 0 : factors.split(),
                      .columns = columns});
    return {a, b};
  }

  std::int32_t place_packed(const Blob& blob) {
    const auto [found, is_new] = packed_.try_emplace(
        std::tuple(blob.role, blob.first, blob.second, blob.second_column, blob.columns), -1);
    if (!is_new) return found->second;
    const Matrix& from = matrix(blob.first >= 0 ? blob.first : blob.second);
    const bool is_a = blob.role == Role::packed_a;
    const std::int64_t all_rows = blob.role == Role::packed_gate_up ? 2 * from.rows : from.rows;
    const std::int64_t rows = is_a ? blob.columns : packed_rows(all_rows);
    const std::int64_t width = is_a ? packed_depth(from.columns) : blob.columns;
    found->second =
        put(blob, rows * width, rows, placement_.format.dtype, placement_.format.scaled());
    return found->second;
  }

  const Adapter& adapter_;
  Placement& placement_;
  OpenPages open_;
  std::map<std::tuple<Role, std::int32_t, std::int32_t, std::int32_t, std::int32_t>, std::int32_t>
      packed_;
};

}  // namespace

std::uint64_t Placement::pages() const {
  std::uint64_t sum = 0;
  for (const std::uint32_t count : runs) sum += count;
  return sum;
}

std::size_t Placement::experts(const Seam& seam) const {
  const std::int32_t site = seam.first_site >= 0 ? seam.first_site : seam.second_site;
  return sites[static_cast<std::size_t>(site)].factors.size();
}

JoinedFactors Placement::joined(const Seam& seam, std::size_t expert) const {
  const auto of = [&](std::int32_t site) {
    return site < 0 ? Factors() : sites[static_cast<std::size_t>(site)].factors[expert];
  };
  return {of(seam.first_site), of(seam.second_site)};
}

Placement place_blobs(const Adapter& adapter, PageFormat format, std::uint64_t page_bytes) {
  Placement placement;
  placement.format = format;
  placement.page_bytes = page_bytes;
  placement.largest_rank = adapter.largest_rank;
  placement.exclusive = exclusive_reason(adapter);
  Placer(adapter, placement).place();
  return placement;
}

}  // namespace motley::lora
