#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "lora/apply/batch.h"

namespace motley::engine {

// What sequences must have in common to share pages: what they were computed with, as far as their
// keys and values depend on it, and their requests' salt.
struct MixKey {
  std::vector<lora::Mix::KeyPart> parts;
  std::string salt = {};

  friend auto operator<=>(const MixKey&, const MixKey&) = default;
};

// The owners of every page. A page is free, or owned by one or more sequences, or cached: owned by
// none, and still good for a sequence of the same tokens under the same mix. Cached pages are given
// out again when no page is free, the one let go longest ago first.
//
// A full page may be published as a block: its tokens behind a parent, which is a block or the root
// of a mix. An owner of a block owns its parent, and lets go of it later, so that no block is ever
// cached without its parent.
class KvPages {
 public:
  KvPages(std::int64_t pages, std::int64_t page_tokens, bool cache);
  KvPages(const KvPages&) = delete;
  KvPages& operator=(const KvPages&) = delete;

  std::int64_t page_tokens() const { return page_tokens_; }
  std::int64_t pages() const { return static_cast<std::int64_t>(slots_.size()); }
  std::int64_t cached() const { return cached_; }
  std::int64_t used() const { return pages() - available(); }
  // Free or cached: what can be taken.
  std::int64_t available() const { return free_ + cached_; }
  std::int64_t pages_for(std::int64_t tokens) const {
    return (tokens + page_tokens_ - 1) / page_tokens_;
  }

  // How much of a prompt is there: `pages` blocks, of which `idle` are cached, not owned.
  struct Match {
    std::int64_t pages = 0;
    std::int64_t idle = 0;
  };
  // At most as many blocks as leave one token to compute.
  Match match(const MixKey& key, std::span<const std::int32_t> tokens) const;

  // How many pages have no owner any more once each of these has been let go so often.
  std::int64_t freed_by(std::span<std::int32_t> let_go) const;

  // Every page is in exactly one state, the counts agree, and `owners[page]` is right.
  Result<void> check(std::span<const std::int32_t> owners) const;

 private:
  friend class SequencePages;

  using BlockId = std::uint64_t;  // unique for ever; 0 is none
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
    std::int32_t next = none;  // in its bucket
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
  void let_go(Roots::iterator root);
  std::int32_t find(BlockId parent, std::span<const std::int32_t> tokens) const;
  // The page that holds this block: the one given, or one that was published before.
  std::int32_t publish(Roots::iterator root, BlockId parent, std::span<const std::int32_t> tokens,
                       std::int32_t page);
  void unpublish(std::int32_t page);
  // No request finds a block of this mix any more.
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
  std::int64_t free_ = 0;
  std::int64_t cached_ = 0;
  BlockId next_block_ = 1;
};

// The pages of one sequence, let go when it goes.
class SequencePages {
 public:
  SequencePages(KvPages& pages, const MixKey& key);
  SequencePages(SequencePages&& other) noexcept;
  SequencePages& operator=(SequencePages&&) = delete;
  ~SequencePages();

  std::span<const std::int32_t> pages() const { return list_; }

  // Before anything else: takes what the cache has of these tokens. Returns how many it has.
  std::int64_t adopt(std::span<const std::int32_t> tokens);

  // Pages to be taken before tokens [computed, tokens) can be written.
  std::int64_t missing(std::int64_t computed, std::int64_t tokens) const;
  struct Copy {
    std::int32_t from = 0;
    std::int32_t to = 0;
  };
  // Takes them. A page that others own too and that holds tokens before `computed` is replaced by
  // one's own: the caller copies what it holds before it is written.
  std::optional<Copy> grow(std::int64_t computed, std::int64_t tokens);

  // Growing to that many tokens takes nothing from the heap.
  void reserve(std::int64_t tokens) {
    list_.reserve(static_cast<std::size_t>(owner_->pages_for(tokens)));
  }

  // All pages are shared with a second sequence.
  SequencePages fork() const;

  // Full pages of the first `computed` tokens become blocks. Where a block is there already, its
  // page is taken instead of one's own.
  void publish(std::span<const std::int32_t> tokens, std::int64_t computed);
  // What was computed under this mix can't be trusted: no page of it is found from now on, and
  // sequences that hold some publish nothing behind them.
  void forget_mix() { owner_->forget(root_); }

 private:
  KvPages* owner_;
  KvPages::Roots::iterator root_;
  std::vector<std::int32_t> list_;
  std::int64_t published_ = 0;  // leading pages that are blocks
};

}  // namespace motley::engine
