#pragma once

#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "serving/prompts/notices.h"

// Notes about a request, for the headers of its answer.
namespace motley::server {

// `x-motley-ignored` and `x-motley-unenforced`, if there is something to note: the places separated
// by commas, with "..." if there are more. Characters that are not allowed in headers become
// question marks.
std::vector<std::pair<std::string, std::string>> notice_headers(const serving::Notices& notices);

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
