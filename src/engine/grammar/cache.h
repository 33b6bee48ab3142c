#pragma once

#include <cstddef>
#include <list>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "engine/grammar/grammar.h"

namespace motley::engine {

// Compiled grammars by what they were compiled of, at most so many bytes of them: the one that was
// not asked for the longest goes first.
class GrammarCache {
 public:
  explicit GrammarCache(std::size_t most_bytes) : most_bytes_(most_bytes) {}

  std::optional<Grammar> find(const std::string& key) {
    const auto place = places_.find(key);
    if (place == places_.end()) return std::nullopt;
    entries_.splice(entries_.begin(), entries_, place->second);
    return place->second->grammar;
  }

  // The key must be new.
  void put(const std::string& key, const Grammar& grammar) {
    if (bytes_of(key, grammar) > most_bytes_) return;
    entries_.push_front({.key = key, .grammar = grammar});
    places_.emplace(key, entries_.begin());
    bytes_ += bytes_of(key, grammar);
    while (bytes_ > most_bytes_) {
      const Entry& last = entries_.back();
      bytes_ -= bytes_of(last.key, last.grammar);
      places_.erase(last.key);
      entries_.pop_back();
    }
  }

  std::size_t bytes() const { return bytes_; }
  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::string key;
    Grammar grammar;
  };
  static std::size_t bytes_of(const std::string& key, const Grammar& grammar) {
    return 2 * key.size() + grammar.bytes();
  }

  std::size_t most_bytes_;
  std::size_t bytes_ = 0;
  std::list<Entry> entries_;  // the last one asked for in front
  std::unordered_map<std::string, std::list<Entry>::iterator> places_;
};

}  // namespace motley::engine
