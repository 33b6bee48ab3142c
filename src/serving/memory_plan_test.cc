#include "serving/memory_plan.h"

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace motley::serving {
namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;
constexpr std::uint64_t gib = std::uint64_t{1} << 30;

constexpr Machine cpu{.cpus = 8};
constexpr Machine gpu{.on_gpu = true, .cpus = 8};

// Keys and values of 16 tokens take 64 KiB.
constexpr ModelSizes model{.max_positions = 4096, .page_tokens = 16, .page_bytes = 64 << 10};
constexpr DeviceMemory memory{.total = 64 * gib, .available = 34 * gib, .adapter_bytes = 2 * gib};

// A model that keeps states, in memory of which a fifth is 16 slots.
constexpr ModelSizes recurrent{.max_positions = 4096,
                               .page_tokens = 16,
                               .page_bytes = 64 << 10,
                               .slot_bytes = 4096,
                               .snapshot_bytes = 1024};
constexpr DeviceMemory small{
    .total = gib, .available = gib + 80 * std::uint64_t{4096}, .adapter_bytes = gib};

StepPlan planned(const Machine& machine, const DeviceMemory& device, const ModelSizes& sizes,
                 const MemorySettings& asked) {
  return plan_steps(machine, device, sizes, asked).value();
}

std::string refusal(const Machine& machine, const DeviceMemory& device, const ModelSizes& sizes,
                    const MemorySettings& asked) {
  const auto plan = plan_steps(machine, device, sizes, asked);
  return plan.ok() ? "none" : plan.error().message();
}

TEST(AdapterPool, IsAnEighthOfWhatIsFreeDividedAmongRanksOfTheHost) {
  struct Case {
    Machine machine;
    std::uint64_t available;
    MemorySettings asked;
    std::uint64_t bytes;
  };
  const std::vector<Case> cases = {
      {cpu, 16 * gib, {}, 2 * gib},
      {gpu, 16 * gib, {}, 2 * gib},
      {{.ranks = 2}, 16 * gib, {}, gib},
      {{.ranks = 2, .replicas = 2}, 16 * gib, {}, gib / 2},
      {{.replicas = 4}, 16 * gib, {}, gib / 2},
      // Each rank has a GPU of its own.
      {{.on_gpu = true, .ranks = 2, .replicas = 2}, 16 * gib, {}, 2 * gib},
      // The least size.
      {cpu, 256 * mib, {}, 64 * mib},
      {cpu, 0, {}, 64 * mib},
      {gpu, 256 * mib, {}, 64 * mib},
      {{.ranks = 64}, 16 * gib, {}, 64 * mib},
      // Each rank gets what was asked for.
      {cpu, 16 * gib, {.adapter_memory = 3 * gib}, 3 * gib},
      {{.ranks = 2, .replicas = 2}, 16 * gib, {.adapter_memory = 3 * gib}, 3 * gib},
      {gpu, 16 * gib, {.adapter_memory = mib}, mib},
  };
  for (std::size_t i = 0; i < cases.size(); ++i)
    EXPECT_EQ(plan_adapter_pool(cases[i].machine, cases[i].available, cases[i].asked),
              cases[i].bytes)
        << "case " << i;
}

Machine gpus(int ranks, int replicas = 1) {
  return {.on_gpu = true, .ranks = ranks, .replicas = replicas};
}

std::uint64_t default_tier(const Machine& machine, const HostTier& tier) {
  return plan_host_tier(machine, tier, {}).value();
}

TEST(HostTier, IsTwiceTheDevicesPool) {
  const HostTier tier{.pool_bytes = 3 * gib, .host_available = 100 * gib};
  EXPECT_EQ(default_tier(gpus(1), tier), 6 * gib);
  EXPECT_EQ(default_tier(gpus(4), tier), 6 * gib);
}

TEST(HostTier, TakesAtMostHalfOfWhatTheHostHasForAllGpus) {
  const HostTier tier{.pool_bytes = 60 * gib, .host_available = 40 * gib};
  EXPECT_EQ(default_tier(gpus(1), tier), 20 * gib);
  EXPECT_EQ(default_tier(gpus(2), tier), 10 * gib);
  EXPECT_EQ(default_tier(gpus(2, 2), tier), 5 * gib);
}

TEST(HostTier, HoldsAPage) {
  EXPECT_EQ(default_tier(gpus(1), {.pool_bytes = gib, .page_bytes = 4096, .host_available = 10}),
            4096);
}

TEST(HostTier, RanksShareOutWhatWasAskedFor) {
  const HostTier tier{.page_bytes = 4096};
  EXPECT_EQ(plan_host_tier(gpus(4, 2), tier, {.adapter_host_memory = 8 * gib}).value(), 2 * gib);
  EXPECT_EQ(plan_host_tier(gpus(2), tier, {.adapter_host_memory = 8192}).value(), 4096);
}

TEST(HostTier, RefusesLessThanAPageOfEachRank) {
  const HostTier tier{.page_bytes = 4096};
  const auto refused = plan_host_tier(gpus(2), tier, {.adapter_host_memory = 5000});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::invalid_argument);
  EXPECT_EQ(refused.error().message(),
            "4.9 KiB hold no page of adapters for each of 2 ranks, which takes 4.0 KiB: give at "
            "least 8.0 KiB");
  EXPECT_EQ(plan_host_tier(gpus(1), tier, {.adapter_host_memory = 1000}).error().message(),
            "1000 B hold no page of adapters, which takes 4.0 KiB: give at least 4.0 KiB");
}

TEST(StepRows, AreThoseOfTheDevice) {
  struct Case {
    Machine machine;
    std::optional<std::int64_t> file_bytes;
    MemorySettings asked;
    std::int64_t rows;
    std::int64_t sequences;
  };
  const std::int64_t row = 16 << 20;
  const std::vector<Case> cases = {
      {gpu, {}, {}, 512, 256},
      {gpu, 0, {}, 512, 256},
      {gpu, {}, {.max_batch_tokens = 8192}, 8192, 256},
      {gpu, {}, {.max_batch_tokens = 100}, 100, 100},
      // 32 sequences for each CPU, 64 at least; rows for the weights that they read.
      {{.cpus = 1}, 0, {}, 64, 64},
      {{.cpus = 2}, 0, {}, 64, 64},
      {{.cpus = 3}, 0, {}, 96, 96},
      {{.cpus = 3}, row - 1, {}, 96, 96},
      {{.cpus = 3}, 10 * row, {}, 106, 96},
      {{.cpus = 3}, 1000 * row, {}, 512, 96},
      {{.cpus = 3}, {}, {}, 512, 96},
      {{.cpus = 128}, 0, {}, 512, 256},
      {{.cpus = 3}, {}, {.max_batch_tokens = 2000}, 2000, 96},
      {{.cpus = 3}, {}, {.max_batch_tokens = 10}, 10, 10},
      // Replicas divide the CPUs, ranks of an engine work on the same sequences.
      {{.replicas = 2, .cpus = 6}, 0, {}, 96, 96},
      {{.replicas = 8, .cpus = 8}, 0, {}, 64, 64},
      {{.ranks = 2, .cpus = 3}, 0, {}, 96, 96},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    ModelSizes sizes = model;
    sizes.file_bytes = cases[i].file_bytes;
    const StepPlan plan = planned(cases[i].machine, memory, sizes, cases[i].asked);
    EXPECT_EQ(plan.rows, cases[i].rows) << "case " << i;
    EXPECT_EQ(plan.sequences, cases[i].sequences) << "case " << i;
  }
}

TEST(StepRows, AGpuComputesAllLogitsOfAStepAtOnce) {
  EXPECT_EQ(planned(gpu, memory, model, {}).logit_rows, 256);
  EXPECT_EQ(planned(gpu, memory, model, {.max_batch_tokens = 10}).logit_rows, 10);
  EXPECT_EQ(planned(cpu, memory, model, {}).logit_rows, std::nullopt);
}

TEST(StepTokens, AreThoseOfTheModelUnlessFewerAreAskedFor) {
  EXPECT_EQ(planned(gpu, memory, model, {}).tokens, 4096);
  EXPECT_EQ(planned(gpu, memory, model, {.max_model_len = 4096}).tokens, 4096);
  EXPECT_EQ(planned(gpu, memory, model, {.max_model_len = 100}).tokens, 100);
  for (const Machine& machine : {cpu, gpu})
    EXPECT_EQ(refusal(machine, memory, model, {.max_model_len = 4097}),
              "4097 tokens are more than the 4096 that the model's config.json allows "
              "(--max-model-len): use 4096 or less, or auto");
}

// Pages of the longest sequences, as many as a step has.
TEST(KvPages, AreNoMoreThanSequencesUse) {
  EXPECT_EQ(planned(gpu, memory, model, {}).pages, 256 * 256);
  EXPECT_EQ(planned(gpu, memory, model, {.max_model_len = 17}).pages, 256 * 2);
  EXPECT_EQ(planned(gpu, memory, model, {.max_batch_tokens = 3}).pages, 3 * 256);
  EXPECT_EQ(planned(cpu, memory, model, {.max_model_len = 16}).pages, 256);
  EXPECT_EQ(planned(cpu, memory, model, {.max_model_len = 16, .kv_memory = gib}).pages, 256);
}

TEST(KvPages, TakeAQuarterOfTheFreeHostMemoryDividedAmongRanks) {
  struct Case {
    Machine machine;
    std::uint64_t bytes;
  };
  const std::vector<Case> cases = {
      {{.cpus = 128}, 8 * gib},  // of 34 GiB, less a pool of 2
      {{.ranks = 2, .cpus = 128}, 15 * gib / 4},
      {{.replicas = 2, .cpus = 128}, 15 * gib / 4},
      {{.ranks = 2, .replicas = 2, .cpus = 128}, 13 * gib / 8},
  };
  ModelSizes long_model = model;
  long_model.max_positions = 1 << 22;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const StepPlan plan = planned(cases[i].machine, memory, long_model, {});
    EXPECT_EQ(plan.pages, static_cast<std::int64_t>(cases[i].bytes / (64 << 10))) << "case " << i;
    EXPECT_EQ(plan.tokens, 16 * plan.pages) << "case " << i;
    EXPECT_EQ(plan.spare, std::nullopt) << "case " << i;
  }
}

TEST(KvPages, OfAGpuAreWhatTheRunnerFindsFree) {
  for (const Machine& machine : {gpu, gpus(4, 2)}) {
    const StepPlan plan = planned(machine, {.total = 64 * gib, .available = 0}, model, {});
    EXPECT_EQ(plan.spare, 2 * gib);
    EXPECT_EQ(plan.pages, 256 * 256);
    EXPECT_EQ(plan.tokens, 4096);
  }
}

TEST(KvPages, FillTheMemoryThatWasAskedForOnEachRank) {
  const MemorySettings asked{.kv_memory = 10 * (64 << 10) + 1};
  const std::vector<Machine> machines = {
      cpu, gpu, {.ranks = 2, .replicas = 2, .cpus = 8}, gpus(2, 2)};
  for (const Machine& machine : machines) {
    const StepPlan plan = planned(machine, memory, model, asked);
    EXPECT_EQ(plan.pages, 10);
    EXPECT_EQ(plan.tokens, 160) << "a sequence that has all pages";
    EXPECT_EQ(plan.spare, std::nullopt);
  }
  EXPECT_EQ(planned(cpu, memory, model, {.max_model_len = 100, .kv_memory = gib}).tokens, 100);
}

TEST(KvPages, RefuseTooLittleMemory) {
  for (const Machine& machine : {cpu, gpu}) {
    EXPECT_EQ(refusal(machine, memory, model, {.kv_memory = 1000}),
              "1000 B hold no page of keys and values, which takes 64.0 KiB (--kv-memory): "
              "give more, or free some memory");
    EXPECT_EQ(refusal(machine, memory, model, {.kv_memory = 2 * (64 << 10)}), "none");
  }
  const auto full = plan_steps(cpu, {.available = gib, .adapter_bytes = 2 * gib}, model, {});
  ASSERT_FALSE(full.ok()) << "the pool took more than is left";
  EXPECT_EQ(full.error().code(), ErrorCode::out_of_memory);
  EXPECT_EQ(full.error().message(),
            "0 B hold no page of keys and values, which takes 64.0 KiB (--kv-memory): give "
            "more, or free some memory");
}

// All layers are recurrent.
TEST(KvPages, TakeNothingWhereNothingIsKeptForAToken) {
  ModelSizes sizes = recurrent;
  sizes.page_bytes = 0;
  EXPECT_EQ(planned(cpu, memory, sizes, {}).pages, 256 * 256);
  EXPECT_EQ(planned(cpu, memory, sizes, {}).tokens, 4096);
}

struct States {
  std::int64_t slots = 0;
  std::int64_t snapshots = 0;
  friend bool operator==(const States&, const States&) = default;
  friend std::ostream& operator<<(std::ostream& out, const States& states) {
    return out << states.slots << " slots, " << states.snapshots << " snapshots";
  }
};

States states_of(const Machine& machine, const DeviceMemory& device, const MemorySettings& asked) {
  MemorySettings settings = asked;
  if (!settings.kv_memory) settings.kv_memory = 2 * (64 << 10);
  const StepPlan plan = planned(machine, device, recurrent, settings);
  return {plan.state_slots, plan.snapshots};
}

// Half of the memory is for slots, but for no more than a step has sequences.
TEST(StateMemory, IsSharedOutAmongSlotsAndSnapshots) {
  struct Case {
    Machine machine;
    MemorySettings asked;
    States states;
  };
  const std::vector<Case> cases = {
      {cpu, {.state_memory = 16 * 4096}, {8, 32}},
      {gpu, {.state_memory = 16 * 4096}, {8, 32}},
      {cpu, {.state_memory = 5 * 4096}, {2, 12}},
      {cpu, {.state_memory = 4096}, {1, 0}},
      // Of each rank.
      {{.ranks = 4, .replicas = 2}, {.state_memory = 16 * 4096}, {8, 32}},
      {{.cpus = 1}, {.state_memory = 1000 * 4096}, {64, 936 * 4}},
      {gpu, {.max_batch_tokens = 3, .state_memory = 16 * 4096}, {3, 52}},
      // A snapshot belongs to a page of a sequence of the longest kind.
      {{.cpus = 1}, {.max_model_len = 16, .state_memory = 1000 * 4096}, {64, 64}},
      {cpu, {.state_memory = 16 * 4096, .state_snapshots = 0}, {8, 32}},
  };
  for (std::size_t i = 0; i < cases.size(); ++i)
    EXPECT_EQ(states_of(cases[i].machine, memory, cases[i].asked), cases[i].states) << "case " << i;
}

// `small` has 80 slots without the pool; keys and values as they were asked for take 32 of them.
TEST(StateMemory, IsAFifthOfWhatAdaptersAndKeysAndValuesLeave) {
  constexpr std::uint64_t kv = 2 * (64 << 10);
  const auto slots = [](std::uint64_t count) { return count * 4096; };
  EXPECT_EQ(planned(gpu, small, recurrent, {}).state_slots, 8);
  EXPECT_EQ(planned(gpu, small, recurrent, {}).snapshots, 32);
  const DeviceMemory with_kv{.available = gib + kv + slots(80), .adapter_bytes = gib};
  EXPECT_EQ(states_of(cpu, with_kv, {}), (States{8, 32}));
  EXPECT_EQ(states_of(gpu, with_kv, {}), (States{8, 32}));
  // Two ranks have two pools, and keys and values twice.
  const DeviceMemory of_two{.available = 2 * (gib + kv) + slots(80), .adapter_bytes = gib};
  EXPECT_EQ(states_of({.ranks = 2, .cpus = 8}, of_two, {}), (States{4, 16}));
  EXPECT_EQ(states_of({.replicas = 2, .cpus = 8}, of_two, {}), (States{4, 16}));
  EXPECT_EQ(states_of(gpus(2), with_kv, {}), (States{8, 32})) << "each rank has a GPU of its own";
}

TEST(StateMemory, HoldsOneSequence) {
  EXPECT_EQ(states_of(gpu, {.available = gib, .adapter_bytes = 2 * gib}, {}), (States{1, 0}))
      << "with any memory";
  EXPECT_EQ(refusal(gpu, memory, recurrent, {.state_memory = 4000}),
            "3.9 KiB hold no sequence's state, which takes 4.0 KiB (--state-memory): give more, "
            "half of it for snapshots");
}

TEST(StateMemory, IsForModelsWithStates) {
  EXPECT_EQ(planned(gpu, memory, model, {}).state_slots, 0);
  EXPECT_EQ(planned(gpu, memory, model, {}).snapshots, 0);
  EXPECT_EQ(refusal(gpu, memory, model, {.state_memory = gib}),
            "no layer of this model keeps a state for each sequence (--state-memory): leave it "
            "out");
  EXPECT_EQ(refusal(cpu, memory, model, {.state_host_memory = gib}),
            "no layer of this model keeps a state for each sequence (--state-host-memory): leave "
            "it out");
  EXPECT_EQ(refusal(gpu, memory, model, {.state_snapshots = 0}),
            "no layer of this model keeps a state for each sequence (--state-snapshots): leave it "
            "out");
}

constexpr StepPlan with_places{.pages = 1 << 20, .snapshots = 100};

std::int64_t host_places(const Machine& machine, std::uint64_t available, const ModelSizes& sizes,
                         const MemorySettings& asked, const StepPlan& steps = with_places) {
  return plan_host_snapshots(machine, available, sizes, steps, asked).value();
}
std::string host_refusal(const Machine& machine, const MemorySettings& asked,
                         const StepPlan& steps = with_places) {
  const auto places = plan_host_snapshots(machine, gib, recurrent, steps, asked);
  return places.ok() ? "none" : places.error().message();
}

TEST(HostSnapshots, AreTwiceThoseOfTheDevice) {
  EXPECT_EQ(host_places(gpu, gib, recurrent, {}), 200);
  EXPECT_EQ(host_places(gpus(4, 2), gib, recurrent, {}), 200);
  EXPECT_EQ(host_places(gpu, gib, recurrent, {}, {.pages = 1 << 20}), 0)
      << "they would come from places on the device";
  EXPECT_EQ(host_places(cpu, gib, recurrent, {}), 0) << "the host's memory is the device's";
  EXPECT_EQ(host_places(gpu, gib, model, {}), 0) << "no states";
}

TEST(HostSnapshots, TakeAtMostAQuarterOfWhatTheHostHasForAllGpus) {
  EXPECT_EQ(host_places(gpu, 400 * 1024, recurrent, {}), 100);
  EXPECT_EQ(host_places(gpus(5), 400 * 1024, recurrent, {}), 20);
  EXPECT_EQ(host_places(gpus(5, 2), 400 * 1024, recurrent, {}), 10);
  EXPECT_EQ(host_places(gpu, 1000, recurrent, {}), 0);
}

TEST(HostSnapshots, TakeAtMost8GibOfARank) {
  ModelSizes large = recurrent;
  large.snapshot_bytes = gib / 2;
  EXPECT_EQ(host_places(gpu, 1024 * gib, large, {}), 16);
  EXPECT_EQ(host_places(gpus(4), 1024 * gib, large, {}), 16);
}

TEST(HostSnapshots, RanksShareOutWhatWasAskedFor) {
  EXPECT_EQ(host_places(gpu, gib, recurrent, {.state_host_memory = mib}), 1024);
  EXPECT_EQ(host_places(gpus(2, 2), gib, recurrent, {.state_host_memory = mib}), 512);
  EXPECT_EQ(host_places(gpu, gib, recurrent, {.state_host_memory = 0}), 0);
  EXPECT_EQ(host_places(gpu, gib, recurrent, {.state_host_memory = mib},
                        {.pages = 300, .snapshots = 100}),
            300)
      << "a snapshot belongs to a page";
  EXPECT_EQ(host_places(cpu, gib, recurrent, {.state_host_memory = mib}), 0);
}

TEST(HostSnapshots, RefuseASizeThatHoldsNoneOrThatIsNotThere) {
  EXPECT_EQ(host_refusal(gpu, {.state_host_memory = 1000}),
            "1000 B hold no snapshot, which takes 1.0 KiB (--state-host-memory): give at least "
            "1.0 KiB, or 0 for none");
  EXPECT_EQ(host_refusal(gpus(2), {.state_host_memory = 2000}),
            "2.0 KiB hold no snapshot for each of 2 ranks, which takes 1.0 KiB "
            "(--state-host-memory): give at least 2.0 KiB, or 0 for none");
  EXPECT_EQ(host_refusal(gpu, {.state_host_memory = 2 * gib}),
            "2.0 GiB are more than the 1.0 GiB that the host has left (--state-host-memory): give "
            "less, or free some memory");
  EXPECT_EQ(host_refusal(gpu, {.state_host_memory = mib}, {.pages = 1 << 20}),
            "a snapshot comes to the host from a place on the device, which has none "
            "(--state-host-memory): give more with --state-memory");
  EXPECT_EQ(host_refusal(gpu, {.state_host_memory = mib}), "none");
}

// Of several wrong options the same one is named on every machine.
TEST(StepPlan, NamesTheFirstOptionThatIsWrong) {
  const MemorySettings all{.max_model_len = 5000, .kv_memory = 0, .state_memory = 1};
  EXPECT_EQ(plan_steps(cpu, memory, recurrent, all).error().where(), "--max-model-len");
  const MemorySettings two{.kv_memory = 0, .state_memory = 1};
  EXPECT_EQ(plan_steps(gpu, memory, recurrent, two).error().where(), "--state-memory");
  EXPECT_EQ(plan_steps(gpu, memory, recurrent, {.kv_memory = 0}).error().where(), "--kv-memory");
}

// What is planned for the host of a CPU's ranks is never more than there is.
TEST(StepPlan, RanksOfAHostTogetherStayBelowWhatIsFree) {
  ModelSizes sizes = recurrent;
  sizes.max_positions = 1 << 20;
  for (int ranks = 1; ranks <= 8; ranks *= 2) {
    for (int replicas = 1; replicas <= 4; ++replicas) {
      const Machine machine{.ranks = ranks, .replicas = replicas, .cpus = 64};
      const std::uint64_t available = 64 * gib;
      const std::uint64_t pool = plan_adapter_pool(machine, available, {});
      const StepPlan plan =
          planned(machine, {.available = available, .adapter_bytes = pool}, sizes, {});
      const auto of_rank = pool + static_cast<std::uint64_t>(plan.pages * sizes.page_bytes +
                                                             plan.state_slots * sizes.slot_bytes +
                                                             plan.snapshots * sizes.snapshot_bytes);
      EXPECT_LE(of_rank * static_cast<std::uint64_t>(ranks * replicas), available)
          << ranks << " ranks, " << replicas << " replicas";
    }
  }
}

TEST(RequestMemory, IsAQuarterOfASmallLimit) {
  EXPECT_EQ(default_request_memory(64 * gib), 2 * gib);
  EXPECT_EQ(default_request_memory(gib), gib / 4);
}

TEST(PushMemory, IsAQuarterOfTheMemory) { EXPECT_EQ(default_push_memory(64 * gib), 16 * gib); }

}  // namespace
}  // namespace motley::serving
