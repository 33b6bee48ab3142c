#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "recurrence/world.h"

// The laws of a recurrent state: the bits of a row do not depend on where its prompt was cut, on
// rows that were taken back, on what stands beside it, or on whether its state was forked or came
// from a snapshot.
namespace motley::recurrence_tests {
namespace {

using kernels::max_uncertain_rows;

class RecurrenceLaws : public testing::TestWithParam<Layer> {
 protected:
  static constexpr std::int64_t length = 150;

  const Mixer& mixer() const { return GetParam().mixer; }
  const Form& form() const { return GetParam().form; }

  Outputs whole(const InputRows& rows, std::int64_t count) const {
    Slots slots(mixer(), form(), 1);
    Place place;
    return slots.step({{&place, &rows, count}});
  }

  // Rows [from, from + count) of a sequence are rows [at, at + count) of a step's.
  void expect_rows(const Outputs& step, std::int64_t at, const Outputs& whole, std::int64_t from,
                   std::int64_t count, const std::string& what) const {
    const auto compare = [&](const std::vector<float>& got, const std::vector<float>& expected,
                             std::int64_t width) {
      for (std::int64_t i = 0; i < count * width; ++i) {
        ASSERT_EQ(got[static_cast<std::size_t>(at * width + i)],
                  expected[static_cast<std::size_t>(from * width + i)])
            << what << ", row " << from + i / width << ", number " << i % width;
      }
    };
    compare(step.mixed, whole.mixed, mixer().values());
    compare(step.convolved, whole.convolved, mixer().channels());
  }
};

INSTANTIATE_TEST_SUITE_P(Layers, RecurrenceLaws, testing::ValuesIn(layers()),
                         [](const auto& test) { return name_of(test.param); });

TEST_P(RecurrenceLaws, APromptMayBeCutAnywhere) {
  const InputRows rows = make_rows(mixer(), length, 1);
  const Outputs expected = whole(rows, length);
  for (const int most : {1, 3, 17, 70}) {
    Numbers numbers(static_cast<std::uint64_t>(most));
    Slots slots(mixer(), form(), 1);
    Place place;
    while (place.length < length) {
      const std::int64_t from = place.length;
      const std::int64_t count = std::min<std::int64_t>(1 + numbers.below(most), length - from);
      const Outputs got = slots.step({{&place, &rows, count}});
      expect_rows(got, 0, expected, from, count, cat("pieces of up to ", most));
      if (HasFatalFailure()) return;
    }
  }
}

// Rows whose drafts were wrong from some row on are taken back, also such that have overflowed;
// those before it stay.
TEST_P(RecurrenceLaws, ARowThatWasVerifiedHasTheBitsOfADecodedOne) {
  const InputRows rows = make_rows(mixer(), length, 2);
  const Outputs expected = whole(rows, length);
  Numbers numbers(3);
  Slots slots(mixer(), form(), 1);
  Place place;
  while (place.length < length - 40) {
    const std::int64_t from = place.length;
    // None is certain where the draw of the last may have to wait.
    const std::int64_t certain = numbers.below(numbers.below(4) == 0 ? 20 : 3);
    const std::int64_t uncertain =
        std::max<std::int64_t>(numbers.below(max_uncertain_rows + 1), certain == 0 ? 1 : 0);
    const std::int64_t right = numbers.below(static_cast<int>(uncertain) + 1);
    InputRows drafted = rows;
    if (numbers.below(2) == 0) {
      spoil_rows(from + certain + right, drafted);
    } else {
      const InputRows wrong = make_rows(mixer(), length, 100 + static_cast<std::uint64_t>(from));
      copy_rows(wrong, from + certain + right, length, drafted);
    }
    const Outputs got = slots.step({{&place, &drafted, certain + uncertain, uncertain}});
    expect_rows(got, 0, expected, from, certain + right, "verified");
    if (HasFatalFailure()) return;
    place.length = from + certain + right;
  }
}

// The draw of a step's last row may have to wait, and that of every row before it.
TEST_P(RecurrenceLaws, AStepNeedsNoCertainRow) {
  const InputRows rows = make_rows(mixer(), length, 10);
  const Outputs expected = whole(rows, length);
  for (std::int64_t uncertain = 1; uncertain <= max_uncertain_rows; ++uncertain) {
    Slots slots(mixer(), form(), 1);
    Place place;
    std::int64_t right = 0;
    while (place.length < 60) {
      const std::int64_t from = place.length;
      InputRows drafted = rows;
      spoil_rows(from + right, drafted);
      const Outputs got = slots.step({{&place, &drafted, uncertain, uncertain}});
      expect_rows(got, 0, expected, from, right, cat(uncertain, " uncertain rows"));
      if (HasFatalFailure()) return;
      place.length = from + right;
      right = right == uncertain ? 0 : right + 1;
    }
  }
}

TEST_P(RecurrenceLaws, ADraftThatOverflowsReachesNoEarlierRow) {
  const InputRows rows = make_rows(mixer(), length, 11);
  const Outputs expected = whole(rows, length);
  for (const Overflow kind : overflows) {
    Numbers numbers(12);
    Slots slots(mixer(), form(), 1);
    Place place;
    while (place.length < 60) {
      const std::int64_t from = place.length;
      const std::int64_t certain = numbers.below(numbers.below(4) == 0 ? 20 : 3);
      const std::int64_t uncertain = 1 + numbers.below(max_uncertain_rows);
      const std::int64_t right = numbers.below(static_cast<int>(uncertain) + 1);
      InputRows drafted = rows;
      overflow_rows(from + certain + right, kind, drafted);
      const Outputs got = slots.step({{&place, &drafted, certain + uncertain, uncertain}});
      expect_rows(got, 0, expected, from, certain + right,
                  cat("overflow ", static_cast<int>(kind)));
      if (HasFatalFailure()) return;
      place.length = from + certain + right;
    }
  }
}

TEST_P(RecurrenceLaws, AForkHasTheBitsOfBoth) {
  const InputRows one = make_rows(mixer(), length, 4);
  for (const std::int64_t common : {5, 16, 30, 63}) {
    InputRows two = make_rows(mixer(), length, 5);
    copy_rows(one, 0, common, two);
    const Outputs expected_one = whole(one, length);
    const Outputs expected_two = whole(two, length);
    Slots slots(mixer(), form(), 3);
    Place first{.slot = 2};
    slots.step({{&first, &one, common - 1}});
    slots.step({{&first, &one, 1}});
    Place second = first;
    second.slot = 0;
    slots.copy(2, 0);
    // Both go on beside each other, in steps of different sizes, the first with drafts.
    while (first.length + 7 <= length) {
      const std::int64_t at_one = first.length;
      const std::int64_t at_two = second.length;
      InputRows drafted = one;
      spoil_rows(at_one + 5, drafted);
      const Outputs got = slots.step({{&second, &two, 3}, {&first, &drafted, 7, 4}});
      expect_rows(got, 0, expected_two, at_two, 3, cat("forked at ", common));
      expect_rows(got, 3, expected_one, at_one, 5, cat("went on from ", common));
      if (HasFatalFailure()) return;
      first.length = at_one + 5;
    }
  }
}

// Where a step ends far behind its anchor: drafts that crossed a border were all right.
TEST_P(RecurrenceLaws, AForkFarBehindTheAnchorHasTheBitsOfBoth) {
  const InputRows rows = make_rows(mixer(), length, 9);
  const Outputs expected = whole(rows, length);
  Slots slots(mixer(), form(), 2);
  Place first{.slot = 1};
  slots.step({{&first, &rows, 46}});
  slots.step({{&first, &rows, 1 + max_uncertain_rows, max_uncertain_rows}});
  first.length = 47 + max_uncertain_rows;
  ASSERT_EQ(first.length - first.anchor, 23);
  slots.copy(1, 0);
  Place second = first;
  second.slot = 0;
  for (Place* const place : {&first, &second}) {
    const std::int64_t from = place->length;
    const Outputs got = slots.step({{place, &rows, 9, place == &first ? 8 : 0}});
    expect_rows(got, 0, expected, from, 9, cat("slot ", place->slot));
  }
}

// A snapshot may be taken after any step, also of a sequence whose last rows were taken back: a
// preempted one, or another with the same prefix, goes on from its anchor.
TEST_P(RecurrenceLaws, ASnapshotIsTheAnchor) {
  const InputRows rows = make_rows(mixer(), length, 6);
  const Outputs expected = whole(rows, length);
  Numbers numbers(7);
  Slots slots(mixer(), form(), 2);
  Place place{.slot = 1};
  while (place.length < length - 12) {
    const std::int64_t from = place.length;
    const std::int64_t certain = numbers.below(4);
    const std::int64_t uncertain =
        std::max<std::int64_t>(numbers.below(max_uncertain_rows + 1), certain == 0 ? 1 : 0);
    const std::int64_t right = numbers.below(static_cast<int>(uncertain) + 1);
    InputRows drafted = rows;
    spoil_rows(from + certain + right, drafted);
    slots.step({{&place, &drafted, certain + uncertain, uncertain}});
    place.length = from + certain + right;
    Place back{.slot = 0, .length = place.anchor, .anchor = place.anchor};
    slots.restore(slots.snapshot(1), 0);
    const std::int64_t count = std::min<std::int64_t>(length - back.length, 40);
    const Outputs got = slots.step({{&back, &rows, count}});
    expect_rows(got, 0, expected, place.anchor, count,
                cat("from ", place.anchor, ", taken at ", place.length));
    if (HasFatalFailure()) return;
  }
}

TEST_P(RecurrenceLaws, WhatStandsBesideARowChangesNothing) {
  std::vector<InputRows> rows;
  std::vector<Outputs> expected;
  for (std::uint64_t i = 0; i < 4; ++i) {
    rows.push_back(make_rows(mixer(), length, 20 + i));
    expected.push_back(whole(rows.back(), length));
  }
  Numbers numbers(8);
  Slots slots(mixer(), form(), 4);
  std::vector<Place> places(4);
  for (std::size_t i = 0; i < places.size(); ++i) places[i].slot = static_cast<std::int32_t>(3 - i);
  for (int round = 0; round < 30; ++round) {
    std::vector<Piece> pieces;
    std::vector<std::int64_t> from;
    for (std::size_t i = 0; i < places.size(); ++i) {
      const std::int64_t left = length - places[i].length;
      // A sequence without rows in a step is one, too.
      const auto count = std::min<std::int64_t>(numbers.below(12), left);
      from.push_back(places[i].length);
      pieces.push_back({&places[i], &rows[i], count});
    }
    const Outputs got = slots.step(pieces);
    std::int64_t at = 0;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      expect_rows(got, at, expected[i], from[i], pieces[i].count, cat("sequence ", i));
      at += pieces[i].count;
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace motley::recurrence_tests
