#include <algorithm>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "base/cat.h"
#include "lora/files/conventions/builder.h"

namespace motley::lora {

namespace {

using Item = Unit::Item;

// One map's rows in parts that were adapted each by itself. The whole has the parts' ranks one
// after the other: A stacked, and B with each part's rows in its ranks alone.
class Parts {
 public:
  Parts(Builder& builder, const SiteSpec& spec) : builder_(builder), spec_(spec) {}

  Result<void> add(const Unit& unit) {
    const Item* const a = unit.part(Part::a);
    const Item* const b = unit.part(Part::b);
    MOTLEY_TRY_VOID(require_both(a, b, "lora_B", "lora_A"));
    if (a->entry->shape.elements() == 0 && b->entry->shape.elements() == 0) return {};
    const auto part = static_cast<std::size_t>(unit.module.expert);
    const std::int64_t rows = spec_.row_parts[part];
    const tensor::Shape& of_a = a->entry->shape;
    const tensor::Shape& of_b = b->entry->shape;
    if (of_a.rank() != 2 || of_a[1] != spec_.in)
      return bad_tensor(*a,
                        cat("is ", to_string(of_a), ", and the base has ", spec_.in, " inputs"));
    if (of_b.rank() != 2 || of_b[0] != rows)
      return bad_tensor(*b, cat("is ", to_string(of_b), ", and the base has ", rows, " outputs"));
    const std::int64_t rank = of_a[0];
    MOTLEY_TRY_VOID(check_rank(*a, rank, *b, of_b[1], builder_.config.rank_of(unit.path)));
    MOTLEY_TRY(Matrix read_a, read_matrix(*a, rank, spec_.in));
    MOTLEY_TRY(Matrix read_b, read_matrix(*b, rows, rank));
    const std::int64_t first = std::accumulate(
        spec_.row_parts.begin(), spec_.row_parts.begin() + unit.module.expert, std::int64_t{0});
    read_.push_back(
        {first, builder_.config.scale_of(unit.path), std::move(read_a), std::move(read_b)});
    return {};
  }

  void build() {
    if (read_.empty()) return;
    const float scale = read_.front().scale;
    Matrix a{0, spec_.in, {}};
    for (const Read& part : read_) {
      a.rows += part.a.rows;
      a.values.insert(a.values.end(), part.a.values.begin(), part.a.values.end());
    }
    const std::int64_t rank = a.rows;
    Matrix b{spec_.out, rank, std::vector<float>(static_cast<std::size_t>(spec_.out * rank))};
    std::int64_t at = 0;  // the part's first rank
    for (const Read& part : read_) {
      for (std::int64_t row = 0; row < part.b.rows; ++row) {
        for (std::int64_t r = 0; r < part.b.columns; ++r)
          b.values[static_cast<std::size_t>((part.first + row) * rank + at + r)] =
              part.b.row(row)[r] * (part.scale / scale);
      }
      at += part.b.columns;
    }
    const int place_a = builder_.add(std::move(a));
    const int place_b = builder_.add(std::move(b));
    builder_.at(spec_).factors[0] = {place_a, place_b, static_cast<int>(rank), scale};
  }

 private:
  struct Read {
    std::int64_t first = 0;  // row of the map
    float scale = 1;
    Matrix a;
    Matrix b;
  };

  Builder& builder_;
  const SiteSpec& spec_;
  std::vector<Read> read_;
};

}  // namespace

Result<void> build_row_parts(Builder& builder, const Units& units) {
  std::map<Site, Parts> parts;
  for (const auto& [module, unit] : units) {
    if (module.form != Form::some_rows) continue;
    if (units.contains(Module{module.site, Form::plain, 0})) {
      const Item* const any = unit.part(unit.part(Part::a) != nullptr ? Part::a : Part::b);
      return bad_tensor(*any, cat("adapts rows of ", name(module.site.projection),
                                  ", which has factors of its own"));
    }
    const SiteSpec& spec = *builder.sites.find(module.site);
    MOTLEY_TRY_VOID(parts.try_emplace(module.site, builder, spec).first->second.add(unit));
  }
  for (auto& [site, all] : parts) all.build();
  return {};
}

}  // namespace motley::lora
