#include "gpu/expert_pages.h"

#include <algorithm>
#include <utility>

#include "base/cat.h"
#include "base/check.h"
#include "lora/pages/packed_layout.h"

namespace motley::gpu_tests {

using lora::Adapter;
using lora::Factors;
using lora::Mix;
using lora::Pool;
using lora::Projection;
using lora::StepTable;

namespace {

// Numbers that some experts, or gate and up, have in common are one matrix.
class Matrices {
 public:
  explicit Matrices(Adapter& adapter) : adapter_(adapter), first_(adapter.matrices.size()) {}

  int place(std::int64_t rows, std::int64_t columns, const std::vector<float>& values) {
    for (std::size_t i = first_; i < adapter_.matrices.size(); ++i) {
      if (adapter_.matrices[i].rows == rows && adapter_.matrices[i].values == values)
        return static_cast<int>(i);
    }
    adapter_.matrices.push_back({rows, columns, values});
    return static_cast<int>(adapter_.matrices.size()) - 1;
  }

 private:
  Adapter& adapter_;
  std::size_t first_;
};

}  // namespace

tensor::Device& test_device() {
  static tensor::Device* const device =
      tensor::open_device({.kind = tensor::DeviceChoice::Kind::cuda}).value().release();
  return *device;
}

lora::Adapter to_adapter(const WorldShape& shape, const WorldAdapter& from) {
  Adapter adapter;
  const auto place_a = [&](const std::vector<const std::vector<WorldFactor>*>& maps, int in) {
    Matrices matrices(adapter);
    std::vector<std::vector<int>> places;
    for (const auto* map : maps) {
      places.emplace_back();
      for (const WorldFactor& factor : *map)
        places.back().push_back(factor.rank == 0 ? -1 : matrices.place(factor.rank, in, factor.a));
    }
    return places;
  };
  const auto add_site = [&](Projection projection, const std::vector<WorldFactor>& map,
                            const std::vector<int>& a, int in, int out) {
    if (map.empty()) return;
    Matrices matrices(adapter);
    std::vector<Factors> factors;
    for (std::size_t e = 0; e < map.size(); ++e) {
      const WorldFactor& factor = map[e];
      if (factor.rank == 0) {
        factors.emplace_back();
        continue;
      }
      factors.push_back(
          {a[e], matrices.place(out, factor.rank, factor.b), factor.rank, factor.scale});
      adapter.largest_rank = std::max(adapter.largest_rank, factor.rank);
    }
    adapter.sites.push_back({{adapted_layer, projection}, in, out, factors});
  };
  const auto first = place_a({&from.gate, &from.up}, shape.hidden);
  const auto second = place_a({&from.down}, shape.intermediate);
  add_site(Projection::expert_gate, from.gate, first[0], shape.hidden, shape.intermediate);
  add_site(Projection::expert_up, from.up, first[1], shape.hidden, shape.intermediate);
  add_site(Projection::expert_down, from.down, second[0], shape.intermediate, shape.hidden);
  std::ranges::sort(adapter.sites, {}, [](const lora::SiteDelta& delta) { return delta.site; });
  adapter.version = hash_content(adapter);
  return adapter;
}

AdapterPages::AdapterPages(const WorldShape& shape, const std::vector<WorldAdapter>& adapters,
                           const WorldMixes& mixes, lora::PageFormat format)
    : stream_(test_device().create_stream().value()) {
  Pool::Options options{.page_bytes = 16 << 10,
                        .dtype = format.dtype,
                        .experts = format.experts,
                        .directory = true,
                        .poison = true,
                        .staging = {.piece_bytes = 64 << 10, .pieces = 3}};
  std::vector<Adapter> loaded;
  std::uint64_t pages = 1;
  for (const WorldAdapter& adapter : adapters) {
    loaded.push_back(to_adapter(shape, adapter));
    pages += Pool::pages_of(loaded.back(), options);
  }
  options.bytes = pages * options.page_bytes;
  pool_ = Pool::create(test_device(), options).value();
  std::vector<lora::Handle> handles;
  for (std::size_t i = 0; i < loaded.size(); ++i)
    handles.push_back(pool_->load(cat("adapter-", i), loaded[i]).value());
  for (const auto& terms : mixes) {
    std::vector<Mix::Part> parts;
    int columns[2] = {0, 0};
    for (const WorldTerm& term : terms) {
      const auto at = static_cast<std::size_t>(term.adapter);
      parts.push_back({handles[at], term.scale});
      const std::int32_t rank = loaded[at].largest_rank;
      max_rank = std::max(max_rank, rank);
      columns[0] += lora::packed_columns(rank, rank);
      columns[1] += lora::packed_columns(rank, 0);
    }
    mixes_.push_back(Mix::make(parts).value());
    max_terms = std::max(max_terms, static_cast<int>(terms.size()));
    for (int seam = 0; seam < 2; ++seam)
      max_columns[seam] = std::max(max_columns[seam], columns[seam]);
  }
}

std::unique_ptr<StepTable> AdapterPages::table(const std::vector<std::int32_t>& labels) const {
  const int rows = std::max(static_cast<int>(labels.size()), 1);
  auto table =
      StepTable::create(test_device(), *pool_,
                        {.rows = rows, .labels = label_count(), .terms = label_count() * max_terms})
          .value();
  std::vector<Mix> of_rows;
  for (const std::int32_t label : labels)
    of_rows.push_back(label < 0 ? Mix() : mixes_[static_cast<std::size_t>(label)]);
  lora::Batch batch;
  batch.build(of_rows);
  MOTLEY_CHECK(table->upload(batch, *stream_).ok() && stream_->synchronize().ok(), "an upload");
  return table;
}

}  // namespace motley::gpu_tests
