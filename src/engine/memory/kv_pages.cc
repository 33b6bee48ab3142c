#include "engine/memory/kv_pages.h"

#include <algorithm>
#include <bit>

#include "base/cat.h"
#include "base/check.h"

namespace motley::engine {
namespace {

// Finalizer of a 64-bit mix: every bit of the input affects every bit of the result.
std::uint64_t scramble(std::uint64_t value) {
  value ^= value >> 32;
  value *= 0xd6e8feb86659fd93ULL;
  value ^= value >> 32;
  value *= 0xd6e8feb86659fd93ULL;
  return value ^ (value >> 32);
}

std::uint64_t hash_block(std::uint64_t parent, std::span<const std::int32_t> tokens) {
  std::uint64_t hash = scramble(parent);
  for (const std::int32_t token : tokens)
    hash = scramble(hash ^ static_cast<std::uint32_t>(token)) + 0x9e3779b97f4a7c15ULL;
  return hash;
}

}  // namespace

KvPages::KvPages(std::int64_t pages, std::int64_t page_tokens, bool cache,
                 std::optional<Snapshots> snapshots)
    : page_tokens_(page_tokens),
      cache_(cache),
      slots_(static_cast<std::size_t>(pages)),
      tokens_(cache ? static_cast<std::size_t>(pages * page_tokens) : 0),
      buckets_(std::bit_ceil(static_cast<std::size_t>(2 * pages)), none),
      keeps_states_(snapshots.has_value()),
      places_(snapshots.value_or(Snapshots{}).places),
      host_places_(snapshots.value_or(Snapshots{}).host_places) {
  MOTLEY_CHECK(pages > 0 && page_tokens > 0, "pages that hold something");
  free_list_.reserve(slots_.size());
  if (snapshots) copies_.reserve(snapshots->copies);
  for (std::int64_t page = pages - 1; page >= 0; --page)
    free_list_.push_back(static_cast<std::int32_t>(page));
}

std::span<std::int32_t> KvPages::tokens_of(std::int32_t page) {
  const auto width = static_cast<std::size_t>(page_tokens_);
  return std::span(tokens_).subspan(static_cast<std::size_t>(page) * width, width);
}

std::span<const std::int32_t> KvPages::tokens_of(std::int32_t page) const {
  const auto width = static_cast<std::size_t>(page_tokens_);
  return std::span(tokens_).subspan(static_cast<std::size_t>(page) * width, width);
}

std::int32_t KvPages::take() {
  std::int32_t page = none;
  if (!free_list_.empty()) {
    page = free_list_.back();
    free_list_.pop_back();
  } else {
    MOTLEY_CHECK(cached_ > 0, "a page is taken only where one is available");
    page = oldest_;
    remove_idle(page);
    unpublish(page);
  }
  slot(page).owners = 1;
  return page;
}

void KvPages::share(std::int32_t page) {
  if (slot(page).owners == 0) remove_idle(page);
  ++slot(page).owners;
}

void KvPages::release(std::int32_t page) {
  Slot& one = slot(page);
  MOTLEY_CHECK(one.owners > 0, "a page is let go by an owner");
  if (--one.owners > 0) return;
  if (one.block != 0) {
    append_idle(page);
    return;
  }
  free_list_.push_back(page);
}

void KvPages::append_idle(std::int32_t page) {
  Slot& one = slot(page);
  one.listed = true;
  one.older = newest_;
  one.newer = none;
  (newest_ == none ? oldest_ : slot(newest_).newer) = page;
  newest_ = page;
  ++cached_;
}

void KvPages::remove_idle(std::int32_t page) {
  Slot& one = slot(page);
  MOTLEY_CHECK(one.listed, "a page without an owner is free or cached");
  (one.older == none ? oldest_ : slot(one.older).newer) = one.newer;
  (one.newer == none ? newest_ : slot(one.newer).older) = one.older;
  one.listed = false;
  --cached_;
}

KvPages::Roots::iterator KvPages::hold_root(const MixKey& key) {
  const auto [root, is_new] = roots_.try_emplace(key);
  if (is_new) root->second.id = next_block_++;
  ++root->second.holders;
  return root;
}

void KvPages::release_root(Roots::iterator root) {
  if (--root->second.holders == 0) roots_.erase(root);
}

std::int32_t KvPages::find(BlockId parent, std::span<const std::int32_t> tokens) const {
  const std::uint64_t hash = hash_block(parent, tokens);
  std::int32_t page = buckets_[hash & (buckets_.size() - 1)];
  while (page != none) {
    const Slot& one = slot(page);
    if (one.hash == hash && one.parent == parent && std::ranges::equal(tokens_of(page), tokens))
      break;
    page = one.next;
  }
  return page;
}

std::int32_t KvPages::publish(Roots::iterator root, BlockId parent,
                              std::span<const std::int32_t> tokens, std::int32_t page) {
  if (const std::int32_t known = find(parent, tokens); known != none) return known;
  Slot& one = slot(page);
  MOTLEY_CHECK(one.block == 0, "a page is published once");
  one.block = next_block_++;
  one.parent = parent;
  one.root = root;
  ++root->second.holders;
  one.hash = hash_block(parent, tokens);
  std::int32_t& first = bucket(one.hash);
  one.next = first;
  first = page;
  std::ranges::copy(tokens, tokens_of(page).begin());
  return page;
}

void KvPages::unpublish(std::int32_t page) {
  Slot& one = slot(page);
  std::int32_t* link = &bucket(one.hash);
  while (*link != page) link = &slot(*link).next;
  *link = one.next;
  release_root(one.root);
  one.block = 0;
  one.parent = 0;
  drop_snapshot(page);
}

void KvPages::drop_snapshot(std::int32_t page) {
  const std::int32_t place = std::exchange(slot(page).snapshot, none);
  if (place != none) places_.give_back(place);
  const std::int32_t on_host = std::exchange(slot(page).host_snapshot, none);
  if (on_host != none) host_places_.give_back(on_host);
}

std::optional<KvPages::Offload> KvPages::begin_offload(std::uint64_t copy) {
  // Enough for what steps save until the next copies have ended.
  constexpr std::size_t ahead = 8;
  if (host_places_.order().empty() || !copies_.may_offload()) return std::nullopt;
  std::int32_t place = none;
  std::size_t seen = 0;
  for (const std::int32_t each : places_.order()) {
    if (seen++ == ahead) break;
    const std::int32_t page = places_.page_of(each);
    if (page == none || places_.is_held(each) || slot(page).host_snapshot != none) continue;
    place = each;
    break;
  }
  if (place == none) return std::nullopt;
  const auto [host_place, lost] = host_places_.take(places_.page_of(place));
  if (host_place == none) return std::nullopt;
  if (lost != none) slot(lost).host_snapshot = none;
  copies_.begin_offload(place, host_place, copy);
  return Offload{.place = place, .host_place = host_place};
}

void KvPages::begin_load(std::int32_t host_place, std::uint64_t copy) {
  copies_.begin_load(host_place, copy);
}

void KvPages::end_copies(std::uint64_t copy) {
  copies_.end(copy, [this](std::int32_t place, std::int32_t host_place) {
    const std::int32_t page = host_places_.page_of(host_place);
    if (slot(page).snapshot == place)
      slot(page).host_snapshot = host_place;
    else
      host_places_.give_back(host_place);  // dropped meanwhile
  });
}

void KvPages::forget(Roots::iterator root) {
  forget([&](const MixKey& key) { return key == root->first; });
}

void KvPages::forget(FunctionRef<bool(const MixKey& key)> is_chosen) {
  for (std::int32_t page = 0; page < static_cast<std::int32_t>(slots_.size()); ++page) {
    const Slot& one = slot(page);
    if (one.block == 0 || !is_chosen(one.root->first)) continue;
    const bool idle = one.listed;
    if (idle) remove_idle(page);
    unpublish(page);
    if (idle) free_list_.push_back(page);
  }
}

KvPages::Match KvPages::match(const MixKey& key, std::span<const std::int32_t> tokens) const {
  const auto root = roots_.find(key);
  if (!cache_ || root == roots_.end()) return {};
  return find_all(root->second.id, tokens, [](std::int32_t) {});
}

KvPages::Match KvPages::find_all(BlockId root, std::span<const std::int32_t> tokens,
                                 FunctionRef<void(std::int32_t page)> visit) const {
  Match match;
  BlockId parent = root;
  const auto width = static_cast<std::size_t>(page_tokens_);
  // Of blocks that count once a later one has a snapshot.
  std::int64_t idle = 0;
  for (std::size_t end = width; end < tokens.size(); end += width) {
    const std::int32_t page = find(parent, tokens.subspan(end - width, width));
    if (page == none) break;
    visit(page);
    ++match.without_state;
    if (slot(page).owners == 0) ++idle;
    parent = slot(page).block;
    if (keeps_states_ && !slot(page).has_state()) continue;
    match.pages += std::exchange(match.without_state, 0);
    match.idle += std::exchange(idle, 0);
  }
  return match;
}

std::int64_t KvPages::freed_by(std::span<std::int32_t> released) const {
  std::ranges::sort(released);
  std::int64_t freed = 0;
  for (std::size_t begin = 0; begin < released.size();) {
    std::size_t end = begin;
    while (end < released.size() && released[end] == released[begin]) ++end;
    freed += slot(released[begin]).owners == static_cast<std::int32_t>(end - begin) ? 1 : 0;
    begin = end;
  }
  return freed;
}

Result<void> KvPages::check(std::span<const std::int32_t> owners) const {
  const auto broken = [](std::string what) { return Error(ErrorCode::internal, std::move(what)); };
  std::vector<BlockId> alive;
  for (const Slot& one : slots_) {
    if (one.block != 0) alive.push_back(one.block);
  }
  std::ranges::sort(alive);
  std::int64_t idle = 0;
  std::int64_t snapshots = 0;
  std::int64_t host_snapshots = copies_.offloads();
  for (std::size_t page = 0; page < slots_.size(); ++page) {
    const Slot& one = slots_[page];
    if (one.snapshot != none) {
      ++snapshots;
      if (one.block == 0 || places_.page_of(one.snapshot) != static_cast<std::int32_t>(page))
        return broken(cat("the snapshot of page ", page, " is another page's, or of no block"));
    }
    if (one.host_snapshot != none) {
      ++host_snapshots;
      if (one.block == 0 ||
          host_places_.page_of(one.host_snapshot) != static_cast<std::int32_t>(page))
        return broken(cat("the snapshot of page ", page, " on the host is another page's"));
    }
    if (one.owners != owners[page])
      return broken(cat("page ", page, " counts ", one.owners, " owners and has ", owners[page]));
    if (one.listed) ++idle;
    if (one.listed && (one.owners > 0 || one.block == 0))
      return broken(cat("page ", page, " is cached, and owned or without content"));
    if (one.block == 0) continue;
    if (find(one.parent, tokens_of(static_cast<std::int32_t>(page))) !=
        static_cast<std::int32_t>(page))
      return broken(cat("page ", page, " is published and can't be found"));
    if (one.parent != one.root->second.id && !std::ranges::binary_search(alive, one.parent))
      return broken(cat("page ", page, " is cached without its parent"));
  }
  if (snapshots != places_.taken())
    return broken(cat(snapshots, " pages have snapshots, and ", places_.taken(), " places"));
  if (host_snapshots != host_places_.taken())
    return broken(cat(host_snapshots, " pages have snapshots on the host or get them, and ",
                      host_places_.taken(), " places are taken"));
  if (!copies_.is_consistent())
    return broken("copies of states are out of order, or counted wrongly");
  if (idle != cached_) return broken(cat(idle, " pages are cached, and counted ", cached_));
  const auto unowned = std::ranges::count(owners, 0);
  if (unowned != available())
    return broken(cat(unowned, " pages have no owner, and ", available(), " are available"));
  auto holders = static_cast<std::int64_t>(alive.size());
  for (const auto& [key, root] : roots_) holders -= root.holders;
  if (holders > 0) return broken("a block's root counts too few holders");
  return {};
}

SequencePages::SequencePages(KvPages& pages, const MixKey& key)
    : owner_(&pages), root_(pages.hold_root(key)) {}

SequencePages::SequencePages(SequencePages&& other) noexcept
    : owner_(std::exchange(other.owner_, nullptr)),
      root_(other.root_),
      list_(std::exchange(other.list_, {})),
      published_(other.published_),
      publishes_(other.publishes_) {}

SequencePages::~SequencePages() {
  if (owner_ == nullptr) return;
  // Children before parents, so that the end of a sequence is reused first.
  while (!list_.empty()) {
    owner_->release(list_.back());
    list_.pop_back();
  }
  owner_->release_root(root_);
}

SequencePages::Adopted SequencePages::adopt(std::span<const std::int32_t> tokens) {
  MOTLEY_CHECK(list_.empty(), "a sequence adopts before it grows");
  if (!owner_->cache_) return {};
  const KvPages::Match match = owner_->find_all(
      root_->second.id, tokens, [this](std::int32_t page) { list_.push_back(page); });
  list_.resize(static_cast<std::size_t>(match.pages));
  for (const std::int32_t page : list_) owner_->share(page);
  published_ = match.pages;
  Adopted adopted{.tokens = match.pages * owner_->page_tokens_,
                  .matched = (match.pages + match.without_state) * owner_->page_tokens_};
  if (owner_->keeps_states_ && !list_.empty()) {
    const KvPages::Slot& slot = owner_->slot(list_.back());
    adopted.snapshot = slot.snapshot;
    adopted.host_snapshot = slot.host_snapshot;
    if (slot.snapshot != KvPages::none) owner_->places_.use(slot.snapshot);
    if (slot.host_snapshot != KvPages::none) owner_->host_places_.use(slot.host_snapshot);
  }
  return adopted;
}

std::optional<std::int32_t> SequencePages::add_snapshot(std::int64_t position) {
  MOTLEY_CHECK(position > 0 && position % owner_->page_tokens_ == 0, "where a page ends");
  const std::int64_t at = position / owner_->page_tokens_ - 1;
  if (!publishes_ || at >= published_) return std::nullopt;
  const std::int32_t page = list_[static_cast<std::size_t>(at)];
  KvPages::Slot& slot = owner_->slot(page);
  if (slot.block == 0) return std::nullopt;  // forgotten
  if (slot.snapshot != KvPages::none) {
    owner_->places_.use(slot.snapshot);
    return std::nullopt;
  }
  const auto [place, lost] = owner_->places_.take(page);
  if (place == SnapshotPlaces::none) return std::nullopt;
  if (lost != SnapshotPlaces::none) owner_->slot(lost).snapshot = KvPages::none;
  slot.snapshot = place;
  return place;
}

std::int64_t SequencePages::missing(std::int64_t computed, std::int64_t tokens) const {
  const auto have = static_cast<std::int64_t>(list_.size());
  const std::int64_t more = std::max<std::int64_t>(0, owner_->pages_for(tokens) - have);
  const std::int64_t at = computed / owner_->page_tokens_;
  const bool copies = at < have && owner_->slot(list_[static_cast<std::size_t>(at)]).owners > 1;
  return more + (copies ? 1 : 0);
}

std::optional<SequencePages::Copy> SequencePages::grow(std::int64_t computed, std::int64_t tokens) {
  std::optional<Copy> copy;
  const auto at = static_cast<std::size_t>(computed / owner_->page_tokens_);
  if (at < list_.size() && owner_->slot(list_[at]).owners > 1) {
    MOTLEY_CHECK(published_ <= static_cast<std::int64_t>(at), "blocks are never written again");
    copy = {.from = list_[at], .to = owner_->take()};
    owner_->release(copy->from);
    list_[at] = copy->to;
  }
  const auto wanted = static_cast<std::size_t>(owner_->pages_for(tokens));
  while (list_.size() < wanted) list_.push_back(owner_->take());
  return copy;
}

SequencePages SequencePages::fork() const {
  SequencePages other(*owner_, root_->first);
  other.list_.reserve(list_.capacity());
  for (const std::int32_t page : list_) {
    owner_->share(page);
    other.list_.push_back(page);
  }
  other.published_ = published_;
  other.publishes_ = publishes_;
  return other;
}

void SequencePages::publish(std::span<const std::int32_t> tokens, std::int64_t computed) {
  if (!owner_->cache_ || !publishes_) return;
  const auto width = static_cast<std::size_t>(owner_->page_tokens_);
  for (; published_ < computed / owner_->page_tokens_; ++published_) {
    const auto at = static_cast<std::size_t>(published_);
    const KvPages::BlockId parent = at == 0 ? root_->second.id : owner_->slot(list_[at - 1]).block;
    if (parent == 0) return;  // forgotten
    const std::int32_t page =
        owner_->publish(root_, parent, tokens.subspan(at * width, width), list_[at]);
    if (page == list_[at]) continue;
    owner_->share(page);
    owner_->release(list_[at]);
    list_[at] = page;
  }
}

}  // namespace motley::engine
