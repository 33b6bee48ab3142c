#include "engine/grammar/compiler.h"

#include <algorithm>
#include <utility>

#include "base/cat.h"
#include "engine/grammar/check.h"

namespace motley::engine {
namespace {

std::string key_of(const GrammarSpec& spec) {
  return static_cast<char>('0' + static_cast<int>(spec.kind)) + spec.text;
}

Error stopping() {
  return {ErrorCode::unavailable, "the server is shutting down", "grammar",
          "send the request to another one"};
}

}  // namespace

GrammarCompiler::GrammarCompiler(Compile compile, const Options& options)
    : compile_(std::move(compile)), options_(options), cache_(options.cache_bytes) {
  threads_.emplace_back([this] { watch_time(); });
  for (int i = 0; i < options.threads; ++i) threads_.emplace_back([this] { compile_works(); });
}

GrammarCompiler::~GrammarCompiler() {
  std::vector<Waiter> waiters;
  {
    const std::lock_guard lock(lock_);
    stopping_ = true;
    for (auto& [key, work] : works_)
      std::move(work->waiters.begin(), work->waiters.end(), std::back_inserter(waiters));
    for (auto& [key, work] : works_) work->waiters.clear();
    queue_.clear();
  }
  has_work_.notify_all();
  has_waiters_.notify_all();
  for (const Waiter& waiter : waiters) waiter.done(stopping());
  for (std::thread& thread : threads_) thread.join();
}

void GrammarCompiler::submit(const GrammarSpec& spec, Done done) {
  if (Result<void> checked = check_grammar(spec); !checked.ok())
    return done(std::move(checked).error());
  if (std::optional<Result<Grammar>> answer = answer_or_wait(spec, done)) done(*std::move(answer));
}

std::optional<Result<Grammar>> GrammarCompiler::answer_or_wait(const GrammarSpec& spec,
                                                               Done& done) {
  std::string key = key_of(spec);
  const std::lock_guard lock(lock_);
  if (const std::optional<Grammar> grammar = cache_.find(key)) return Result<Grammar>(*grammar);
  if (stopping_) return stopping();
  std::shared_ptr<Work>& work = works_[key];
  if (work == nullptr) {
    if (queue_.size() >= options_.most_queued) {
      works_.erase(key);
      return Error(ErrorCode::busy, "too many grammars wait to be compiled", "grammar",
                   "try again in a few seconds");
    }
    work = std::make_shared<Work>(Work{.spec = spec, .key = std::move(key), .waiters = {}});
    queue_.push_back(work);
    has_work_.notify_one();
  }
  work->waiters.push_back(
      {.done = std::move(done), .until = std::chrono::steady_clock::now() + options_.patience});
  has_waiters_.notify_one();
  return std::nullopt;
}

void GrammarCompiler::compile_works() {
  while (true) {
    std::shared_ptr<Work> work;
    {
      std::unique_lock lock(lock_);
      has_work_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (stopping_) return;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    const Result<Grammar> grammar = compile_(work->spec);
    std::vector<Waiter> waiters;
    {
      const std::lock_guard lock(lock_);
      works_.erase(work->key);
      waiters = std::move(work->waiters);
      if (grammar.ok()) cache_.put(work->key, *grammar);
    }
    for (const Waiter& waiter : waiters) waiter.done(grammar);
  }
}

TimePoint GrammarCompiler::first_deadline() const {
  TimePoint first = TimePoint::max();
  for (const auto& [key, work] : works_) {
    for (const Waiter& waiter : work->waiters) first = std::min(first, waiter.until);
  }
  return first;
}

std::vector<GrammarCompiler::Waiter> GrammarCompiler::take_impatient(TimePoint now) {
  std::vector<Waiter> gone;
  for (auto& [key, work] : works_) {
    const auto first = std::partition(work->waiters.begin(), work->waiters.end(),
                                      [now](const Waiter& waiter) { return waiter.until > now; });
    std::move(first, work->waiters.end(), std::back_inserter(gone));
    work->waiters.erase(first, work->waiters.end());
  }
  std::erase_if(queue_, [this](const std::shared_ptr<Work>& work) {
    if (!work->waiters.empty()) return false;
    works_.erase(work->key);
    return true;
  });
  return gone;
}

void GrammarCompiler::watch_time() {
  std::unique_lock lock(lock_);
  while (!stopping_) {
    const TimePoint deadline = first_deadline();
    if (deadline == TimePoint::max()) {
      has_waiters_.wait(lock);
      continue;
    }
    has_waiters_.wait_until(lock, deadline);
    std::vector<Waiter> gone = take_impatient(std::chrono::steady_clock::now());
    lock.unlock();
    for (const Waiter& waiter : gone) {
      waiter.done(Error(ErrorCode::too_long,
                        cat("compiling the grammar takes more than ",
                            static_cast<int>(seconds(options_.patience)), " s"),
                        "grammar", "make it smaller: long counts and many alternatives cost most"));
    }
    lock.lock();
  }
}

}  // namespace motley::engine
