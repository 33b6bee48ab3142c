#include "server/requests_under_way.h"

#include <algorithm>
#include <array>
#include <unordered_set>
#include <utility>

namespace motley::server {
namespace {

// What answers put before an id that a client gave.
constexpr std::array<std::string_view, 5> prefixes = {"cmpl-", "chatcmpl-", "resp_", "msg_",
                                                      "generate-tokens-"};

std::string_view plain_id(std::string_view id) {
  for (const std::string_view prefix : prefixes)
    if (id.starts_with(prefix)) return id.substr(prefix.size());
  return id;
}

}  // namespace

RequestsUnderWay::Entry::Entry(RequestsUnderWay& all, std::string_view id, std::string client)
    : all_(all) {
  std::list<Record> one;
  one.push_back({.ids = {std::string(plain_id(id))}, .client = std::move(client)});
  at_ = one.begin();
  const std::lock_guard held(all_.lock_);
  all_.records_.splice(all_.records_.end(), one);
}

RequestsUnderWay::Entry::~Entry() {
  std::list<Record> gone;  // freed without the lock
  const std::lock_guard held(all_.lock_);
  gone.splice(gone.end(), all_.records_, at_);
}

void RequestsUnderWay::Entry::add_id(std::string_view id) {
  if (id.empty()) return;
  const std::lock_guard held(all_.lock_);
  at_->ids.emplace_back(plain_id(id));
}

void RequestsUnderWay::Entry::add(engine::RequestId request) {
  bool aborted = false;
  {
    const std::lock_guard held(all_.lock_);
    at_->requests.push_back(request);
    aborted = at_->aborted;
  }
  if (aborted) all_.engine_.abort(request);
}

std::size_t RequestsUnderWay::abort(const std::vector<std::string>& ids,
                                    const std::optional<std::string>& client) {
  std::unordered_set<std::string_view> asked;
  for (const std::string& id : ids) asked.insert(plain_id(id));
  std::size_t aborted = 0;
  std::vector<engine::RequestId> requests;
  {
    const std::lock_guard held(lock_);
    for (Record& each : records_) {
      if (client && each.client != *client) continue;
      const bool named = asked.empty() || std::ranges::any_of(each.ids, [&](const std::string& id) {
                           return asked.contains(id);
                         });
      if (!named || each.aborted) continue;
      requests.insert(requests.end(), each.requests.begin(), each.requests.end());
      each.aborted = true;
      ++aborted;
    }
  }
  for (const engine::RequestId request : requests) engine_.abort(request);
  return aborted;
}

}  // namespace motley::server
