#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lora/apply/step_table.h"
#include "lora/site_set.h"
#include "model/forward/frame.h"
#include "ops/list/match.h"
#include "ops/list/memory_plan.h"
#include "ops/list/op_list.h"
#include "tensor/buffer.h"

namespace motley::model {

// Ops of a step that ran together, and the name of their launch.
struct TracedLaunch {
  std::string_view pattern;  // empty: the op ran by itself
  std::vector<std::string_view> ops;
  std::vector<std::string> kernels;  // on a GPU
};

// Runs a list of ops in every step. Plans its memory once, and matches fusions once for each kind
// of step.
class Forward {
 public:
  struct Options {
    ops::RowBounds bounds{};  // of steps
    bool fuses = true;        // false: every op runs by itself
  };
  // The list must outlive it.
  Forward(const ops::OpList& list, const Options& options);

  // The memory that run() needs.
  std::size_t bytes() const { return plan_.bytes; }

  struct Call {
    const Batch& batch;
    ops::Context context;  // without scratch
    const moe::Workspaces& experts;
    kernels::AttentionScratch attention_scratch{};
    const tensor::Buffer& memory;
    std::span<const tensor::Tensor> externals;
    std::vector<TracedLaunch>* trace = nullptr;  // what runs is appended to it; null: not traced
  };
  // Allocates nothing on the heap if this kind of step is cached.
  void run(const Call& call);

  // The launches of such a step, in order: names of patterns, and of ops that run by themselves.
  std::vector<std::string> describe(const Call& call);

 private:
  // Everything that a match depends on.
  struct Signature {
    std::int64_t rows = 0;
    bool adapted = false;
    lora::LaunchScope scope{};
    lora::SiteSet sites;

    friend bool operator==(const Signature&, const Signature&) = default;
  };
  struct Known {
    Signature signature;
    ops::Schedule schedule;
  };

  Frame frame_of(const Call& call) const;
  const ops::Schedule& schedule_for(const Frame& frame);
  void sign(const Frame& frame);
  void fill(const Frame& frame, ops::Schedule& schedule) const;
  void run_launch(const ops::Schedule& schedule, const ops::Launch& launch, Frame& frame) const;
  void trace_launch(const ops::Schedule& schedule, const ops::Launch& launch, Frame& frame,
                    std::vector<TracedLaunch>& trace) const;

  const ops::OpList& list_;
  bool fuses_;
  std::vector<std::size_t> scratch_bytes_;  // of each op
  ops::MemoryPlan plan_;
  Signature signature_;       // of the current step
  std::vector<Known> known_;  // the oldest first
};

}  // namespace motley::model
