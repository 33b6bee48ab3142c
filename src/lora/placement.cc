#include "lora/placement.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "base/check.h"
#include "lora/images.h"

namespace motley::lora {
namespace {

using Blob = Placement::Blob;
using Role = Placement::Role;

// Pages with room left, of which only the youngest are looked at: enough to fill gaps, and the cost
// of placing a blob stays bounded.
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
      if (open_.size() == most_open) open_.erase(open_.begin());
      open_.push_back(
          {static_cast<std::uint32_t>(placement_.runs.size() - 1), 0, pages * page_bytes});
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
  std::vector<Open> open_;
};

class Placer {
 public:
  Placer(const Adapter& adapter, Placement& placement)
      : adapter_(adapter),
        placement_(placement),
        open_(placement),
        of_matrix_(adapter.matrices.size(), -1) {}

  void place_site(const SiteDelta& delta) {
    const bool embedding = delta.site.projection == Projection::embed;
    Placement::SitePlace site{.site = delta.site, .in = delta.in, .out = delta.out};
    site.first = placement_.factors.size();
    if (!in_images(delta.site)) {
      site.count = delta.factors.size();
      for (const Factors& factors : delta.factors)
        placement_.factors.push_back(place_rows(factors, embedding));
    }
    site.lora_bias = place_matrix(delta.lora_bias, Role::vector);
    site.gain = place_matrix(delta.gain, Role::vector);
    site.replaced = place_matrix(delta.replaced, Role::table);
    site.replaced_bias = place_matrix(delta.replaced_bias, Role::vector);
    placement_.sites.push_back(site);
  }

  // Of the layer that the delta belongs to, unless its seam stands already.
  void place_seam(const SiteDelta& delta) {
    if (!in_images(delta.site)) return;
    const std::int32_t layer = delta.site.layer;
    const bool down = delta.site.projection == Projection::expert_down;
    const std::int32_t number = down ? 1 : 0;
    const auto stands = [&](const Placement::Seam& seam) {
      return seam.layer == layer && seam.seam == number;
    };
    if (std::ranges::any_of(placement_.seams, stands)) return;
    const SiteDelta* const first =
        adapter_.find({layer, down ? Projection::expert_down : Projection::expert_gate});
    const SiteDelta* const second = down ? nullptr : adapter_.find({layer, Projection::expert_up});
    const std::size_t count = delta.factors.size();
    placement_.seams.push_back({layer, number, placement_.factors.size(), count});
    const auto of = [&](const SiteDelta* site, std::size_t expert) {
      return site == nullptr ? Factors() : site->factors[expert];
    };
    for (std::size_t expert = 0; expert < count; ++expert)
      placement_.factors.push_back(place_images(of(first, expert), of(second, expert), !down));
  }

 private:
  bool in_images(Site site) const {
    return placement_.format.experts == Layout::images &&
           (site.projection == Projection::expert_gate ||
            site.projection == Projection::expert_up || site.projection == Projection::expert_down);
  }

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

  // What is shared has one place.
  std::int32_t place_matrix(std::int32_t index, Role role) {
    if (index < 0) return -1;
    std::int32_t& at = of_matrix_[static_cast<std::size_t>(index)];
    if (at >= 0) {
      MOTLEY_CHECK(placement_.blobs[static_cast<std::size_t>(at)].role == role,
                   "what is shared has one role");
      return at;
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
    return at;
  }

  Placement::Factor place_rows(const Factors& factors, bool embedding) {
    if (!factors.present()) return {};
    return {.a = place_matrix(factors.a, embedding ? Role::columns : Role::rows),
            .b = place_matrix(factors.b, Role::columns),
            .rank = factors.rank,
            .split = padded_rank(factors.rank, placement_.format.dtype),
            .scale = {factors.scale, 0}};
  }

  Placement::Factor place_images(const Factors& first, const Factors& second, bool alternating) {
    if (!first.present() && !second.present()) return {};
    const bool shared = first.present() && second.present() && first.a == second.a &&
                        first.rank == second.rank && first.scale == second.scale;
    const std::int32_t split = (first.rank + 7) / 8 * 8;
    const std::int32_t columns = image_columns(first.rank, shared ? 0 : second.rank);
    const auto index = [](const Factors& factors, int place) {
      return factors.present() ? place : -1;
    };
    Placement::Factor factor{.rank = columns, .split = split};
    factor.scale[0] = first.scale;
    factor.scale[1] = second.scale;
    factor.a = place_image({.role = Role::a_image,
                            .first = index(first, first.a),
                            .second = shared ? -1 : index(second, second.a),
                            .second_column = split,
                            .columns = columns});
    factor.b = place_image({.role = alternating ? Role::alternating_image : Role::b_image,
                            .first = index(first, first.b),
                            .second = index(second, second.b),
                            .second_column = shared ? 0 : split,
                            .columns = columns});
    return factor;
  }

  std::int32_t place_image(const Blob& blob) {
    const auto [found, is_new] = images_.try_emplace(
        std::tuple(blob.role, blob.first, blob.second, blob.second_column, blob.columns), -1);
    if (!is_new) return found->second;
    const Matrix& from = matrix(blob.first >= 0 ? blob.first : blob.second);
    const std::int64_t rows = blob.role == Role::a_image   ? blob.columns
                              : blob.role == Role::b_image ? image_rows(from.rows)
                                                           : image_rows(2 * from.rows);
    const std::int64_t width =
        blob.role == Role::a_image ? image_depth(from.columns) : blob.columns;
    found->second =
        put(blob, rows * width, rows, placement_.format.dtype, placement_.format.scaled());
    return found->second;
  }

  const Adapter& adapter_;
  Placement& placement_;
  OpenPages open_;
  std::vector<std::int32_t> of_matrix_;
  std::map<std::tuple<Role, std::int32_t, std::int32_t, std::int32_t, std::int32_t>, std::int32_t>
      images_;
};

}  // namespace

std::uint64_t Placement::pages() const {
  std::uint64_t sum = 0;
  for (const std::uint32_t count : runs) sum += count;
  return sum;
}

Placement place_blobs(const Adapter& adapter, PageFormat format, std::uint64_t page_bytes) {
  Placement placement;
  placement.format = format;
  placement.page_bytes = page_bytes;
  placement.largest_rank = adapter.largest_rank;
  placement.exclusive = exclusive_reason(adapter);
  Placer placer(adapter, placement);
  for (const SiteDelta& delta : adapter.sites) {
    placer.place_site(delta);
    placer.place_seam(delta);
  }
  return placement;
}

}  // namespace motley::lora
