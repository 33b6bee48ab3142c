#include "engine/memory/kv_pages.h"

#include <gtest/gtest.h>

namespace motley::engine {
namespace {

MixKey key(std::uint64_t version, float scale = 1) {
  return {.parts = {{{version, version}, scale}}};
}

std::vector<std::int32_t> numbers(std::int32_t count, std::int32_t first = 0) {
  std::vector<std::int32_t> tokens;
  for (std::int32_t i = 0; i < count; ++i) tokens.push_back(first + i);
  return tokens;
}

std::vector<std::int32_t> owners_of(const KvPages& pages,
                                    std::initializer_list<const SequencePages*> sequences) {
  std::vector<std::int32_t> owners(static_cast<std::size_t>(pages.pages()), 0);
  for (const SequencePages* sequence : sequences) {
    for (const std::int32_t page : sequence->pages()) ++owners[static_cast<std::size_t>(page)];
  }
  return owners;
}

TEST(KvPages, TheEndOfASequenceIsGivenOutBeforeItsBeginning) {
  KvPages pages(4, 2, true);
  const std::vector<std::int32_t> tokens = numbers(8);
  {
    SequencePages sequence(pages, {});
    sequence.grow(0, 8);
    sequence.publish(tokens, 8);
  }
  EXPECT_EQ(pages.cached(), 4);
  EXPECT_EQ(pages.match({}, numbers(9)).pages, 4);
  SequencePages other(pages, {});
  other.grow(0, 4);
  EXPECT_EQ(pages.match({}, numbers(9)).pages, 2);
  pages.check(owners_of(pages, {&other})).value();
}

TEST(KvPages, KeysMixesByContentAndScale) {
  KvPages pages(8, 2, true);
  SequencePages sequence(pages, key(7));
  sequence.grow(0, 4);
  sequence.publish(numbers(4), 4);
  EXPECT_EQ(pages.match(key(7), numbers(5)).pages, 2);
  EXPECT_EQ(pages.match(key(7, 0.5F), numbers(5)).pages, 0);
  EXPECT_EQ(pages.match(key(8), numbers(5)).pages, 0);
  EXPECT_EQ(pages.match({}, numbers(5)).pages, 0);
  MixKey salted = key(7);
  salted.salt = "mine";
  EXPECT_EQ(pages.match(salted, numbers(5)).pages, 0);
  // The same tokens at another place are another block.
  EXPECT_EQ(pages.match(key(7), numbers(3, 2)).pages, 0);
}

TEST(KvPages, LeavesOneTokenToCompute) {
  KvPages pages(8, 2, true);
  SequencePages sequence(pages, {});
  sequence.grow(0, 4);
  sequence.publish(numbers(4), 4);
  EXPECT_EQ(pages.match({}, numbers(4)).pages, 1);
}

TEST(KvPages, ASecondOfTheSameContentTakesTheFirstsPages) {
  KvPages pages(8, 2, true);
  SequencePages first(pages, {});
  SequencePages second(pages, {});
  for (SequencePages* sequence : {&first, &second}) {
    sequence->grow(0, 5);
    sequence->publish(numbers(5), 5);
  }
  EXPECT_EQ(pages.used(), 4);  // two shared, one each
  EXPECT_EQ(first.pages()[1], second.pages()[1]);
  EXPECT_NE(first.pages()[2], second.pages()[2]);
  pages.check(owners_of(pages, {&first, &second})).value();
}

TEST(KvPages, AForkCopiesThePageThatItWrites) {
  KvPages pages(8, 4, true);
  SequencePages parent(pages, {});
  parent.grow(0, 6);
  SequencePages child = parent.fork();
  EXPECT_EQ(child.missing(6, 7), 1);
  const auto copy = child.grow(6, 7);
  ASSERT_TRUE(copy);
  EXPECT_EQ(copy->from, parent.pages()[1]);
  EXPECT_EQ(copy->to, child.pages()[1]);
  EXPECT_EQ(parent.missing(6, 7), 0);
  EXPECT_FALSE(parent.grow(6, 7));
  pages.check(owners_of(pages, {&parent, &child})).value();
}

TEST(KvPages, WithoutTheCacheNothingIsKept) {
  KvPages pages(4, 2, false);
  {
    SequencePages sequence(pages, {});
    EXPECT_EQ(sequence.adopt(numbers(5)).tokens, 0);
    sequence.grow(0, 4);
    sequence.publish(numbers(4), 4);
  }
  EXPECT_EQ(pages.cached(), 0);
  EXPECT_EQ(pages.match({}, numbers(5)).pages, 0);
}

// A block with the state behind it, and the pages of a sequence of that many tokens.
std::optional<std::int32_t> keep(KvPages& pages, std::int32_t tokens, std::int64_t position,
                                 std::int32_t first = 0) {
  SequencePages sequence(pages, {});
  sequence.adopt(numbers(tokens, first));
  sequence.grow(0, tokens);
  sequence.publish(numbers(tokens, first), tokens);
  return sequence.add_snapshot(position);
}

TEST(KvPages, AMatchEndsAtTheLastSnapshot) {
  KvPages pages(8, 2, true, KvPages::Snapshots{.places = 2});
  EXPECT_TRUE(keep(pages, 8, 4));
  const KvPages::Match match = pages.match({}, numbers(9));
  EXPECT_EQ(match.pages, 2);
  EXPECT_EQ(match.idle, 2);
  EXPECT_EQ(match.without_state, 2);
  SequencePages sequence(pages, {});
  const SequencePages::Adopted adopted = sequence.adopt(numbers(9));
  EXPECT_EQ(adopted.tokens, 4);
  EXPECT_EQ(adopted.matched, 8);
  EXPECT_GE(adopted.snapshot, 0);
  pages.check(owners_of(pages, {&sequence})).value();
  EXPECT_FALSE(sequence.add_snapshot(4)) << "it has one";
  EXPECT_FALSE(sequence.add_snapshot(6)) << "not its page";
}

TEST(KvPages, TheSnapshotUsedLongestAgoGivesUpItsPlace) {
  KvPages pages(16, 2, true, KvPages::Snapshots{.places = 2});
  const auto first = keep(pages, 4, 4, 0);
  const auto second = keep(pages, 4, 4, 100);
  EXPECT_NE(first, second);
  EXPECT_EQ(SequencePages(pages, {}).adopt(numbers(5)).snapshot, first);
  EXPECT_EQ(keep(pages, 4, 4, 200), second);
  EXPECT_EQ(pages.match({}, numbers(5)).pages, 2);
  EXPECT_EQ(pages.match({}, numbers(5, 100)).pages, 0);
  EXPECT_EQ(pages.match({}, numbers(5, 100)).without_state, 2);
  EXPECT_EQ(pages.snapshots(), 2);
  pages.check(owners_of(pages, {})).value();
}

TEST(KvPages, AReusedPageLosesItsSnapshot) {
  KvPages pages(4, 2, true, KvPages::Snapshots{.places = 2});
  EXPECT_TRUE(keep(pages, 8, 8));
  EXPECT_EQ(pages.snapshots(), 1);
  SequencePages other(pages, key(3));
  other.grow(0, 2);
  EXPECT_EQ(pages.snapshots(), 0);
  pages.check(owners_of(pages, {&other})).value();
}

TEST(KvPages, AForgottenMixLosesItsSnapshots) {
  KvPages pages(4, 2, true, KvPages::Snapshots{.places = 2});
  SequencePages sequence(pages, {});
  sequence.grow(0, 4);
  sequence.publish(numbers(4), 4);
  EXPECT_TRUE(sequence.add_snapshot(2));
  sequence.forget_mix();
  EXPECT_EQ(pages.snapshots(), 0);
  EXPECT_FALSE(sequence.add_snapshot(4));
  pages.check(owners_of(pages, {&sequence})).value();
}

}  // namespace
}  // namespace motley::engine
