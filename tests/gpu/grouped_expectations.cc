#include "gpu/grouped_expectations.h"

#include <string>

#include <gtest/gtest.h>

#include "kernels/cuda/tuned_thresholds.h"

namespace motley::gpu_tests {

using kernels::WeightKind;
using kernels::cuda::GroupedTiles;

double tolerance(const WorldShape& shape) { return shape.kind == WeightKind::bf16 ? 4e-3 : 5e-3; }

namespace {
// Of a layer, and of a row.
struct Bounds {
  double all, row;
};
Bounds bounds(const WorldShape& shape) {
  const double all = tolerance(shape);
  if (shape.inputs.scales == kernels::InputRounding::Scales::none) return {all, 2 * all};
  if (shape.kind == WeightKind::i8 && !shape.zero_points) return {all, 4 * all};
  return {2.5e-2, 0x1p-3};
}
}  // namespace

void expect_bits(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  std::size_t different = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == want[i]) continue;
    if (different++ == 0) ADD_FAILURE() << "element " << i << ": " << got[i] << ", not " << want[i];
  }
  EXPECT_EQ(different, 0U) << "of " << got.size();
}

void expect_near(const std::vector<float>& got, const WorldLayer& layer, const WorldRows& rows,
                 const std::vector<WorldAdapter>& adapters, const WorldMixes& mixes) {
  // Codes of h are those of its rounded numbers.
  const bool rounds = layer.shape.inputs.scales != kernels::InputRounding::Scales::none;
  const auto want = define_layer(layer, rows, adapters, mixes, rounds);
  const RelativeError error = relative_error(got, want, layer.shape.hidden);
  EXPECT_LT(error.all, bounds(layer.shape).all);
  EXPECT_LT(error.worst_row, bounds(layer.shape).row);
}

// The answer near the definition, from every cut alike.
void expect_all_alike(const WorldLayer& layer, const WorldRows& rows,
                      const std::vector<WorldAdapter>& adapters, const WorldMixes& mixes,
                      lora::PageFormat format) {
  const PackedLayer packed_layer(layer);
  const AdapterPages packed(layer.shape, adapters, mixes, format);
  const bool lora = !rows.labels.empty();
  GroupedBatch batch(layer, packed_layer, rows, lora ? &packed : nullptr);
  const auto first = batch.run();
  expect_near(first, layer, rows, adapters, mixes);
  int ran = 0;
  for (const GroupedTiles& tiles : kernels::cuda::all_grouped_tiles) {
    if (!kernels::cuda::grouped_supports(tiles, batch.params)) continue;
    SCOPED_TRACE(kernels::cuda::name_of(tiles));
    expect_bits(batch.run(tiles), first);
    if (testing::Test::HasFailure()) return;
    ++ran;
  }
  // Each way to load token rows in each width that the weights have; arranged inputs have one way.
  EXPECT_GE(ran, batch.params.arranges_inputs() ? 4 : 7);
}

}  // namespace motley::gpu_tests
