#include "engine/sequences/sequence_states.h"

#include <gtest/gtest.h>

#include "engine/sequences/test_sequences.h"

namespace motley::engine::test {
namespace {

// Pages of 4 tokens.
Executor::Limits limits_with(std::int64_t snapshots, std::int64_t host_snapshots = 0) {
  Executor::Limits limits = WorldOptions{}.limits;
  limits.pages = 256;
  limits.state_slots = 4;
  limits.snapshots = snapshots;
  limits.host_snapshots = host_snapshots;
  return limits;
}

// Computes and publishes all but the last of its tokens.
void compute(Sequences& sequences, RunningSequence& running, bool saves = false) {
  const std::int64_t rows = running.remaining() - 1;
  const std::span<const std::int32_t> tokens = running.sequence.tokens;
  const runner::Chunk chunk{
      .pages = running.pages.pages(),
      .length = running.computed,
      .tokens = tokens.subspan(static_cast<std::size_t>(running.computed),
                               static_cast<std::size_t>(rows)),
      .mix = running.claim.mix(),
      .logits = runner::LogitsOf::none,
      .state = {.slot = running.slot.number(), .anchor = running.anchor, .certain = rows}};
  std::vector<ChunkOutput> outputs(1);
  sequences.executor.step(std::span(&chunk, 1), outputs, [] {}).value();
  running.computed += rows;
  running.pages.publish(tokens, running.computed);
  sequences.states.settle(running, chunk, saves);
}

TEST(SequenceStates, OfAModelWithoutStatesThereIsNothing) {
  Sequences sequences;
  const auto running = sequences.running({.tokens = prompt(40)});
  EXPECT_FALSE(sequences.states.kept());
  EXPECT_FALSE(running->slot);
  EXPECT_EQ(sequences.states.next_save(*running), 0);
  EXPECT_EQ(sequences.states.rows_wanted(*running), 40);
  EXPECT_FALSE(sequences.states.rows_to_save(*running, 40));
  EXPECT_FALSE(sequences.states.copy_of(running->slot));
  EXPECT_TRUE(sequences.states.follow({}).ok());
}

// Pages of 4.
TEST(SequenceStates, OfPromptsAreSavedWhereThatIsWorthIt) {
  struct Row {
    std::int64_t tokens = 0;
    std::int64_t conversation_tokens = 0;
    std::int64_t computed = 0;
    std::int64_t matched = 0;
    std::int64_t save = 0;
    std::int64_t rows = 0;     // that are wanted
    std::int64_t certain = 0;  // of these
  };
  const std::vector<Row> rows = {
      {.tokens = 11, .save = 8, .rows = 11, .certain = 11},
      {.tokens = 12, .save = 8, .rows = 12, .certain = 11},  // one token at least follows
      {.tokens = 13, .save = 12, .rows = 13, .certain = 13},
      {.tokens = 11, .computed = 8, .save = 0, .rows = 3},
      {.tokens = 4, .save = 0, .rows = 4},
      {.tokens = 30, .conversation_tokens = 21, .save = 20, .rows = 30, .certain = 23},
      {.tokens = 31, .conversation_tokens = 21, .save = 20, .rows = 31, .certain = 23},
      // Of more rows some would be certain: the prompt is split.
      {.tokens = 32, .conversation_tokens = 21, .save = 20, .rows = 20, .certain = 20},
      // 16 pages that were found in vain.
      {.tokens = 100, .matched = 64, .save = 64, .rows = 64, .certain = 64},
      {.tokens = 70, .matched = 64, .save = 64, .rows = 64, .certain = 64},
      {.tokens = 68, .matched = 64, .save = 64, .rows = 68, .certain = 67},
      {.tokens = 100, .matched = 60, .save = 96, .rows = 100, .certain = 99},
      {.tokens = 100, .computed = 64, .matched = 64, .save = 96, .rows = 36, .certain = 35},
  };
  for (std::size_t i = 0; i < rows.size(); ++i) {
    SCOPED_TRACE(i);
    const Row& row = rows[i];
    Sequences sequences(limits_with(4), {.saves_prompts = true});
    const auto running = sequences.running(
        {.tokens = prompt(row.tokens), .conversation_tokens = row.conversation_tokens});
    running->computed = row.computed;
    running->matched = row.matched;
    const SequenceStates& states = sequences.states;
    EXPECT_EQ(states.next_save(*running), row.save);
    EXPECT_EQ(states.rows_wanted(*running), row.rows);
    EXPECT_EQ(states.rows_to_save(*running, row.rows).value_or(0), row.certain);
    if (row.save > 0) {
      const std::int64_t to_save = row.save - row.computed;
      EXPECT_FALSE(states.rows_to_save(*running, to_save - 1)) << "not as far as that";
      EXPECT_EQ(states.rows_to_save(*running, to_save), to_save);
    }
  }
}

TEST(SequenceStates, AreSavedWhereAskedAndEverySoManyPositions) {
  struct Row {
    std::int64_t interval = 0;
    std::int64_t saved = 0;  // the position of the last one
    bool asked = false;
    bool saves = false;
  };
  // A chunk of 17 tokens that stands at 16 afterwards.
  const std::vector<Row> rows = {{0, 0, false, false}, {0, 0, true, true},
                                 {16, 0, false, true}, {16, 4, false, false},
                                 {12, 4, false, true}, {17, 0, false, false}};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    SCOPED_TRACE(i);
    Sequences sequences(limits_with(4), {.interval = rows[i].interval});
    const auto running = sequences.running({.tokens = prompt(18)});
    running->saved = rows[i].saved;
    compute(sequences, *running, rows[i].asked);
    EXPECT_EQ(running->anchor, 16);
    EXPECT_EQ(running->saved, rows[i].saves ? 16 : rows[i].saved);
    EXPECT_EQ(sequences.executor.saves, rows[i].saves ? 1 : 0);
  }
}

TEST(SequenceStates, AForkHasASlotOfItsOwn) {
  Sequences sequences(limits_with(0));
  const auto running = sequences.running({.tokens = prompt(8)});
  EXPECT_EQ(sequences.states.slots().free(), 3);
  {
    const StateSlot copy = sequences.states.copy_of(running->slot);
    EXPECT_NE(copy.number(), running->slot.number());
    EXPECT_EQ(sequences.executor.state_copies, 1);
    EXPECT_EQ(sequences.states.slots().free(), 2);
  }
  EXPECT_EQ(sequences.states.slots().free(), 3);
}

TEST(SequenceStates, ASnapshotOfTheHostIsThereOnceItsCopyHasEnded) {
  Sequences sequences(limits_with(1, 4));
  sequences.executor.copies_take = 3;
  const auto save = [&](std::int32_t seed) {
    const auto running = sequences.running({.tokens = prompt(10, seed)});
    compute(sequences, *running);
    sequences.states.save(*running);
  };
  save(1);
  EXPECT_TRUE(sequences.states.finish({}).ok());
  EXPECT_TRUE(sequences.states.finish({}).ok());
  save(2);  // takes the only place on the device
  EXPECT_EQ(sequences.executor.offloads, 1);

  SequencePages pages(sequences.pages, {});
  const SequencePages::Adopted adopted = pages.adopt(prompt(10, 1));
  EXPECT_EQ(adopted.tokens, 8);
  EXPECT_EQ(adopted.snapshot, SnapshotPlaces::none);
  std::vector<std::unique_ptr<RunningSequence>> running;
  running.push_back(sequences.running({.tokens = prompt(10, 3)}));
  running[0]->loading = sequences.states.restore(adopted, running[0]->slot);
  EXPECT_EQ(running[0]->loading, sequences.states.copies_begun());
  EXPECT_GT(running[0]->loading, 0U);
  EXPECT_TRUE(sequences.states.follow(running).ok());
  EXPECT_GT(running[0]->loading, 0U);
  EXPECT_TRUE(sequences.states.finish(running).ok());
  EXPECT_EQ(running[0]->loading, 0U);
}

TEST(SequenceStates, TheFirstErrorOfACopyIsToldOnce) {
  Sequences sequences(limits_with(1));
  sequences.states.note(Error(ErrorCode::internal, "first"));
  sequences.states.note(Error(ErrorCode::internal, "second"));
  EXPECT_EQ(sequences.states.outcome().error().what(), "first");
  EXPECT_TRUE(sequences.states.outcome().ok());
}

}  // namespace
}  // namespace motley::engine::test
