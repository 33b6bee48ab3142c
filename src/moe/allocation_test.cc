#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include <gtest/gtest.h>

#include "base/system/thread_pool.h"
#include "kernels/elementary.h"
#include "moe/conformance/conformance.h"
#include "moe/router.h"
#include "moe/select.h"
#include "plan/plan.h"
#include "tensor/arena.h"
#include "tensor/device/cpu_device.h"

namespace {

// Counts the program's heap allocations.
std::atomic<std::int64_t> requests{0};

void* counted(std::size_t bytes) {
  requests.fetch_add(1, std::memory_order_relaxed);
  void* const data = std::malloc(bytes == 0 ? 1 : bytes);
  if (data == nullptr) std::abort();
  return data;
}

}  // namespace

// All plain forms are replaced together, because memory from one may be freed by another.
void* operator new(std::size_t bytes) { return counted(bytes); }
void* operator new[](std::size_t bytes) { return counted(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes); }
void operator delete(void* data) noexcept { std::free(data); }
void operator delete[](void* data) noexcept { std::free(data); }
void operator delete(void* data, std::size_t) noexcept { std::free(data); }
void operator delete[](void* data, std::size_t) noexcept { std::free(data); }
void operator delete(void* data, const std::nothrow_t&) noexcept { std::free(data); }
void operator delete[](void* data, const std::nothrow_t&) noexcept { std::free(data); }

namespace motley::moe {
namespace {

// Routing, the plan and every backend, after a first run.
TEST(HotPath, TakesNothingFromTheHeap) {
  tensor::CpuDevice memory({.threads = 1});
  ThreadPool pool({.threads = 3});
  const quant::Format bf16_format{.element = DType::bf16, .bits = 16};
  const conformance::LayerSpec spec{.gate_up = bf16_format,
                                    .down = bf16_format,
                                    .hidden = 64,
                                    .intermediate = 48,
                                    .experts = 8,
                                    .top_k = 2,
                                    .biases = true};
  const conformance::Layer layer = conformance::make_layer(spec, memory, 1);
  const std::int64_t tokens = 40;
  conformance::Rows rows = conformance::make_rows(spec, tokens, conformance::Routes::spread, 2);
  const std::vector<std::int32_t> labels(40, plan::no_label);
  std::vector<float> logits(std::size_t{40} * 8, 0.5F);
  std::vector<float> out(static_cast<std::size_t>(tokens * spec.hidden));
  const auto view = [](auto& numbers, DType dtype, const tensor::Shape& shape) {
    return tensor::Tensor(reinterpret_cast<std::byte*>(numbers.data()), dtype, shape);
  };
  const RouterSpec router{.kind = RouterKind::sigmoid_grouped,
                          .experts = 8,
                          .top_k = 2,
                          .groups = 4,
                          .kept_groups = 2,
                          .renormalise = true};
  for (const Backend* const backend : backends_of(tensor::DeviceKind::cpu)) {
    const Problem problem = layer.problem(true, tensor::DeviceKind::cpu);
    ASSERT_TRUE(backend->supports(problem));
    const auto experts = backend->prepare(layer.weights, nullptr).value();
    const auto workspace = backend->make_workspace(problem, tokens, {}, memory).value();
    tensor::Arena scratch(memory.allocate(backend->scratch_bytes(problem, tokens)).value());
    const ops::Context context{
        .kernels = &kernels::cpu_table(), .stream = {&pool}, .scratch = &scratch, .exact = true};
    const auto step = [&] {
      const auto weights = view(rows.routing_weights, DType::f32, {tokens, spec.top_k});
      route({.spec = router,
             .logits = view(logits, DType::f32, {tokens, spec.experts}),
             .ids = view(rows.ids, DType::i32, {tokens, spec.top_k}),
             .weights = weights},
            context);
      workspace->begin_step(tokens, labels.data(), context.stream);
      run_experts(*backend, {.experts = *experts,
                             .x = view(rows.x, DType::f32, {tokens, spec.hidden}),
                             .ids = view(rows.ids, DType::i32, {tokens, spec.top_k}),
                             .routing_weights = weights,
                             .out = view(out, DType::f32, {tokens, spec.hidden}),
                             .workspace = *workspace,
                             .context = context});
    };
    step();
    const std::int64_t before = requests.load();
    step();
    EXPECT_EQ(requests.load() - before, 0) << backend->name();
  }
}

}  // namespace
}  // namespace motley::moe
