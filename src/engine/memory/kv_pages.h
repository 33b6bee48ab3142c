#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "engine/memory/snapshot_copies.h"
#include "engine/memory/snapshot_places.h"
#include "lora/apply/batch.h"

namespace motley::engine {

// What sequences must have in common to share pages: everything besides tokens that their keys and
// values depend on, and their requests' salt.
struct MixKey {
  std::vector<lora::Mix::KeyPart> parts;
  std::string salt = {};

  friend auto operator<=>(const MixKey&, const MixKey&) = default;
};

// The ownership of every page. A page is free, or owned by one or more sequences, or cached: owned
// by none, but valid for a sequence with the same tokens and mix. Cached pages are reused when no
// page is free, the least recently released first.
//
// A full page may be published as a block: its tokens after a parent, which is a block or the root
// of a mix. An owner of a block owns its parent, too, and releases it later, so that a block is
// never cached without its parent.
//
// Of a model that keeps a state for each sequence, a block may have a snapshot of the state at its
// end. A sequence can only begin after a block that has one. Snapshots are in places of the
// device's memory or of the host's, or in both.
class KvPages {
 public:
  struct Snapshots {
    std::int64_t places = 0;
    std::int64_t host_places = 0;
    std::int64_t copies = 0;  // from and to the host, under way at once
  };
  // Without snapshots the model keeps no states.
  KvPages(std::int64_t pages, std::int64_t page_tokens, bool cache,
          std::optional<Snapshots> snapshots = {});
  KvPages(const KvPages&) = delete;
  KvPages& operator=(const KvPages&) = delete;

  std::int64_t page_tokens() const { return page_tokens_; }
  std::int64_t pages() const { return static_cast<std::int64_t>(slots_.size()); }
  std::int64_t cached() const { return cached_; }
  std::int64_t used() const { return pages() - available(); }
  // Free or cached pages, which can be taken.
  std::int64_t available() const { return static_cast<std::int64_t>(free_list_.size()) + cached_; }
  std::int64_t pages_for(std::int64_t tokens) const {
    return (tokens + page_tokens_ - 1) / page_tokens_;
  }

  std::int64_t snapshots() const { return places_.taken(); }
  std::int64_t host_snapshots() const { return host_places_.taken(); }

  // A snapshot to copy to the host's memory, so that its place can be given up without loss: one of
  // those that come next. Nothing: there is none, or enough are being copied. The copy has this
  // number; numbers ascend.
  struct Offload {
    std::int32_t place = 0;
    std::int32_t host_place = 0;
  };
  std::optional<Offload> begin_offload(std::uint64_t copy);
  // A copy from this place to a slot has begun.
  void begin_load(std::int32_t host_place, std::uint64_t copy);
  // Copies up to this one have ended.
  void end_copies(std::uint64_t copy);

  // The cached part of a prompt: `pages` blocks, of which `idle` are owned by no sequence.
  struct Match {
    std::int64_t pages = 0;
    std::int64_t idle = 0;
    std::int64_t without_state = 0;  // blocks that match after the last one with a snapshot
  };
  // Leaves at least one token to compute.
  Match match(const MixKey& key, std::span<const std::int32_t> tokens) const;

  // The number of pages without owner after each of these has been released as often as it occurs.
  std::int64_t freed_by(std::span<std::int32_t> released) const;

  // No later sequence finds blocks of the mixes that are chosen, and their snapshots are dropped.
  // Sequences that have such pages keep them, and publish nothing more.
  void forget(FunctionRef<bool(const MixKey& key)> is_chosen);

  // Checks that every page is in exactly one state, that the counts agree, and that owners[page] is
  // right.
  Result<void> check(std::span<const std::int32_t> owners) const;

 private:
  friend class SequencePages;

  using BlockId = std::uint64_t;  // never reused; 0 is none
  struct Root {
    BlockId id = 0;
    std::int64_t holders = 0;  // sequences and published pages
  };
  using Roots = std::map<MixKey, Root>;

  static constexpr std::int32_t none = -1;
  struct Slot {
    std::int32_t owners = 0;
    bool listed = false;        // in the list of cached pages
    std::int32_t older = none;  // neighbours in that list
    std::int32_t newer = none;
    BlockId block = 0;  // published as
    BlockId parent = 0;
    Roots::iterator root = {};  // of a block
    std::uint64_t hash = 0;
    std::int32_t next = none;      // in its bucket
    std::int32_t snapshot = none;  // its place
    std::int32_t host_snapshot = none;

    bool has_state() const { return snapshot != none || host_snapshot != none; }
  };

  Slot& slot(std::int32_t page) { return slots_[static_cast<std::size_t>(page)]; }
  const Slot& slot(std::int32_t page) const { return slots_[static_cast<std::size_t>(page)]; }
  std::span<std::int32_t> tokens_of(std::int32_t page);
  std::span<const std::int32_t> tokens_of(std::int32_t page) const;
  std::int32_t& bucket(std::uint64_t hash) { return buckets_[hash & (buckets_.size() - 1)]; }

  // A page with one owner; there must be one available.
  std::int32_t take();
  void share(std::int32_t page);
  void release(std::int32_t page);

  Roots::iterator hold_root(const MixKey& key);
  void release_root(Roots::iterator root);
  std::int32_t find(BlockId parent, std::span<const std::int32_t> tokens) const;
  // The page of this block: the given one, or one that was published before.
  std::int32_t publish(Roots::iterator root, BlockId parent, std::span<const std::int32_t> tokens,
                       std::int32_t page);
  void unpublish(std::int32_t page);
  void drop_snapshot(std::int32_t page);
  // As match(). Visits all blocks that match, in order, also those without a state.
  Match find_all(BlockId root, std::span<const std::int32_t> tokens,
                 FunctionRef<void(std::int32_t page)> visit) const;
  // No request finds blocks of this mix any more.
  void forget(Roots::iterator root);
  void append_idle(std::int32_t page);
  void remove_idle(std::int32_t page);

  std::int64_t page_tokens_;
  bool cache_;
  std::vector<Slot> slots_;
  std::vector<std::int32_t> tokens_;   // [pages, page_tokens], of published pages
  std::vector<std::int32_t> buckets_;  // a power of two: hash -> first page
  Roots roots_;
  std::vector<std::int32_t> free_list_;
  std::int32_t oldest_ = none;  // of the cached
  std::int32_t newest_ = none;
  std::int64_t cached_ = 0;
  BlockId next_block_ = 1;
  bool keeps_states_;
  SnapshotPlaces places_;
  SnapshotPlaces host_places_;
  SnapshotCopies copies_{&places_, &host_places_};
};

// The pages of one sequence, released on destruction.
class SequencePages {
 public:
  SequencePages(KvPages& pages, const MixKey& key);
  SequencePages(SequencePages&& other) noexcept;
  SequencePages& operator=(SequencePages&&) = delete;
  ~SequencePages();

  std::span<const std::int32_t> pages() const { return list_; }

  // Call first: takes the cached pages of these tokens.
  struct Adopted {
    std::int64_t tokens = 0;
    std::int64_t matched = 0;  // tokens whose pages match, also after the last snapshot
    // The place of the state after them, and that on the host; -1: it is not there.
    std::int32_t snapshot = -1;
    std::int32_t host_snapshot = -1;
  };
  Adopted adopt(std::span<const std::int32_t> tokens);
  // A place for the state at this position, where a page ends; nothing if the page is no block, has
  // one on the device, or no place is to be had.
  std::optional<std::int32_t> add_snapshot(std::int64_t position);

  // The pages to take before tokens [computed, tokens) can be written.
  std::int64_t missing(std::int64_t computed, std::int64_t tokens) const;
  struct Copy {
    std::int32_t from = 0;
    std::int32_t to = 0;
  };
  // Takes them. A shared page that holds tokens before `computed` is replaced by an own page, to
  // which the caller copies its contents before it is written.
  std::optional<Copy> grow(std::int64_t computed, std::int64_t tokens);

  // Reserves memory, so that growing to this many tokens allocates nothing.
  void reserve(std::int64_t tokens) {
    list_.reserve(static_cast<std::size_t>(owner_->pages_for(tokens)));
  }

  // Another sequence that shares all pages.
  SequencePages fork() const;

  // Publishes full pages of the first `computed` tokens as blocks. If a block exists already, its
  // page is used instead of the own one.
  void publish(std::span<const std::int32_t> tokens, std::int64_t computed);
  // Call if results of this mix cannot be trusted: its pages are not found any more, and sequences
  // with such pages publish nothing more.
  void forget_mix() { owner_->forget(root_); }
  // From now on nothing is published: what comes is not of the key's mix alone.
  void stop_publishing() { publishes_ = false; }

 private:
  KvPages* owner_;
  KvPages::Roots::iterator root_;
  std::vector<std::int32_t> list_;
  std::int64_t published_ = 0;  // leading pages that are blocks
  bool publishes_ = true;
};

}  // namespace motley::engine
