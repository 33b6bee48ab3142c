#pragma once

#include <cstddef>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

// Notes about a request, for the headers of its answer.
namespace motley::server {

// The most places that a header names. One more is kept to show that the list is incomplete.
inline constexpr std::size_t max_noticed = 32;

inline bool notices_full(const std::vector<std::string>& list) { return list.size() > max_noticed; }
// Does nothing if the list is full.
void add_notice(std::string place, std::vector<std::string>& list);

struct Notices {
  std::vector<std::string> ignored;     // unknown fields
  std::vector<std::string> unenforced;  // parts of a schema that the grammar does not enforce
};

// `x-motley-ignored` and `x-motley-unenforced`, if there is something to note: the places separated
// by commas, with "..." if there are more. Characters that are not allowed in headers become
// question marks.
std::vector<std::pair<std::string, std::string>> notice_headers(const Notices& notices);

// Logs each ignored field once, up to a number of fields, and logs when that is reached.
// Thread-safe.
class IgnoredFieldsLog {
 public:
  void say(const std::vector<std::string>& ignored);

 private:
  std::mutex mutex_;
  std::set<std::string> logged_;
  bool full_ = false;
};

}  // namespace motley::server
