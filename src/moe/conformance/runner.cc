#include "moe/conformance/runner.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "base/check.h"
#include "base/system/thread_pool.h"
#include "kernels/elementary.h"
#include "lora/apply/apply.h"
#include "lora/apply/step_table.h"
#include "moe/select.h"
#include "plan/plan.h"
#include "tensor/arena.h"

namespace motley::moe::conformance {
namespace {

// Numbers of the host, copied to the device.
class Placed {
 public:
  template <class Number>
  Placed(const std::vector<Number>& numbers, DType dtype, const tensor::Shape& shape,
         tensor::Stream& stream)
      : buffer_(device().allocate(numbers.size() * sizeof(Number)).value()),
        dtype_(dtype),
        shape_(shape) {
    stream.copy(buffer_.data(), numbers.data(), buffer_.size()).value();
    // The host's numbers may be freed after this.
    stream.synchronize().value();
  }

  tensor::Tensor tensor() const { return buffer_.view(dtype_, shape_); }

 private:
  tensor::Buffer buffer_;
  DType dtype_;
  tensor::Shape shape_;
};

}  // namespace

std::span<const Backend* const> backends() { return backends_of(device_kind()); }

std::vector<std::pair<const Backend*, quant::Format>> backends_and_formats() {
  std::vector<std::pair<const Backend*, quant::Format>> all;
  for (const Backend* const backend : backends()) {
    for (const quant::Format& format : formats()) {
      // The reference decodes number by number: it is slow, and one format of each type of codes
      // will do.
      const bool like_another = std::ranges::any_of(all, [&](const auto& pair) {
        return pair.first == backend && pair.second.element == format.element &&
               pair.second.bits == format.bits;
      });
      if (backend->name() == "reference" && like_another) continue;
      Problem problem{.gate_up = format,
                      .down = format,
                      .hidden = 128,
                      .intermediate = 128,
                      .experts = 8,
                      .top_k = 2,
                      .device = device_kind()};
      bool takes = static_cast<bool>(backend->supports(problem));
      problem.exact = true;
      takes = takes || backend->supports(problem);
      if (takes) all.emplace_back(backend, format);
    }
  }
  return all;
}

Result<void*> PoisonedDevice::take(std::size_t bytes) {
  MOTLEY_TRY(tensor::Buffer memory, device_.allocate(bytes));
  poison(memory);
  void* const data = memory.data();
  taken_.emplace(data, std::move(memory));
  return data;
}

void PoisonedDevice::give_back(void* data, std::size_t) noexcept { taken_.erase(data); }

void PoisonedDevice::poison(const tensor::Buffer& memory) {
  const auto stream = device_.create_stream().value();
  stream->fill(memory.data(), std::byte{0xFF}, memory.size()).value();
  stream->synchronize().value();
}

void PoisonedDevice::poison() {
  for (const auto& [data, memory] : taken_) poison(memory);
}

Prepared::Prepared(const Backend& backend, const Layer& layer)
    : backend_(backend), layer_(layer), weight_memory_(device()), work_memory_(device()) {
  const auto uploader = quant::Uploader::create(weight_memory_).value();
  experts_ = backend.prepare(layer.weights, uploader.get()).value();
  uploader->finish().value();
}

Workspace& Prepared::workspace(const Problem& problem, std::int64_t tokens) {
  Work& work = work_[{problem.exact, problem.lora}];
  if (work.workspace == nullptr || work.max_tokens < tokens) {
    work.max_tokens = tokens + 3;
    work.workspace = nullptr;
    work.workspace = backend_
                         .make_workspace(problem, work.max_tokens,
                                         problem.lora ? delta_limits : DeltaLimits{}, work_memory_)
                         .value();
  }
  work_memory_.poison();
  return *work.workspace;
}

std::vector<float> Prepared::run(const Rows& rows, Compute compute, int threads,
                                 const Deltas* deltas, const ExpertKernel* kernel) {
  const LayerSpec& spec = layer_.spec;
  const bool on_cpu = device_kind() == tensor::DeviceKind::cpu;
  const auto own_stream = device().create_stream().value();
  ThreadPool pool({.threads = on_cpu ? threads : 1});
  const kernels::ElementaryTable& kernels = device_kernels();
  const StreamHandle stream = kernels.on(on_cpu ? StreamHandle{&pool} : own_stream->handle());

  std::vector<bf16> rounded_x;
  for (const float number : rows.x) rounded_x.push_back(bf16::from(number));
  const tensor::Shape x_shape{rows.tokens, spec.hidden};
  const tensor::Shape pairs{rows.tokens, spec.top_k};
  const Placed x = compute.x_type == DType::f32
                       ? Placed(rows.x, DType::f32, x_shape, *own_stream)
                       : Placed(rounded_x, DType::bf16, x_shape, *own_stream);
  const Placed ids(rows.ids, DType::i32, pairs, *own_stream);
  const Placed routing_weights(rows.routing_weights, DType::f32, pairs, *own_stream);
  std::vector<float> out(static_cast<std::size_t>(rows.tokens * spec.hidden),
                         std::numeric_limits<float>::quiet_NaN());
  const Placed placed_out(out, DType::f32, x_shape, *own_stream);

  std::unique_ptr<lora::StepTable> table;
  lora::ExpertDeltas expert_deltas;
  const std::int32_t* labels = nullptr;
  if (deltas != nullptr) {
    expert_deltas = {.batch = &deltas->batch, .layer = 0};
    labels = deltas->batch.labels().data();
    if (!on_cpu) {
      const lora::StepTable::Limits limits{
          .rows = static_cast<int>(rows.tokens),
          .labels = delta_limits.labels,
          .terms = delta_limits.labels * delta_limits.terms,
      };
      table = lora::StepTable::create(device(), deltas->pool, limits).value();
      table->upload(deltas->batch, *own_stream).value();
      expert_deltas.table = table.get();
      labels = table->labels();
    }
  }

  const Problem problem = layer_.problem(compute.exact, device_kind(), deltas != nullptr);
  Workspace& workspace = this->workspace(problem, rows.tokens);
  tensor::Arena arena(work_memory_
                          .allocate(backend_.scratch_bytes(problem, rows.tokens) +
                                    (deltas == nullptr || !on_cpu ? 0 : lora::scratch_bytes))
                          .value());
  const ops::Context context{
      .kernels = &kernels, .stream = stream, .scratch = &arena, .exact = compute.exact};
  workspace.begin_step(rows.tokens, labels, stream);
  const ExpertCall call{
      .experts = *experts_,
      .x = x.tensor(),
      .ids = ids.tensor(),
      .routing_weights = routing_weights.tensor(),
      .deltas = deltas == nullptr ? nullptr : &expert_deltas,
      .out = placed_out.tensor(),
      .workspace = workspace,
      .context = context,
  };
  if (kernel == nullptr) {
    moe::run_experts(backend_, call);
  } else if (kernel->supports == nullptr || kernel->supports(call, *kernel)) {
    kernel->run(call, *kernel);
  } else {
    return {};
  }
  MOTLEY_CHECK(arena.used() == 0, "a backend gives its scratch back");
  kernels::cuda_launches(kernels).value();
  own_stream->copy(out.data(), placed_out.tensor().bytes(), out.size() * sizeof(float)).value();
  own_stream->synchronize().value();
  return out;
}

}  // namespace motley::moe::conformance
