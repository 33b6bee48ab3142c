#pragma once

#include <cstddef>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

// What the head of an answer says of its request.
namespace motley::server {

// Places of a list that a header names at most. One more is kept, which says that it is not all.
inline constexpr std::size_t max_noticed = 32;

inline bool notices_full(const std::vector<std::string>& list) { return list.size() > max_noticed; }
// Nothing where the list is full.
void add_notice(std::string place, std::vector<std::string>& list);

struct Notices {
  std::vector<std::string> ignored;     // fields that are not known
  std::vector<std::string> unenforced;  // parts of a schema that the grammar does not hold
};

// `x-motley-ignored` and `x-motley-unenforced`, where there is something to say: the places with
// commas between, and "..." where there are more. Characters that no header may have are question
// marks.
std::vector<std::pair<std::string, std::string>> notice_headers(const Notices& notices);

// Says each ignored field once in the log, of so many fields at most, and where that ends, which it
// says too. For any thread.
class IgnoredFieldsLog {
 public:
  void say(const std::vector<std::string>& ignored);

 private:
  std::mutex mutex_;
  std::set<std::string> logged_;
  bool full_ = false;
};

}  // namespace motley::server
