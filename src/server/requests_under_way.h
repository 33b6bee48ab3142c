#pragma once

#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"

namespace motley::server {

// The generation requests that are being answered, by the ids that their clients gave them. There
// are no more than connections. Thread-safe.
class RequestsUnderWay {
 private:
  struct Record {
    std::vector<std::string> ids;
    std::string client;
    std::vector<engine::RequestId> requests = {};
    bool aborted = false;
  };

 public:
  explicit RequestsUnderWay(engine::Engine& engine) : engine_(engine) {}

  // One of them, as long as this exists.
  class Entry {
   public:
    // `id`: of X-Request-Id; `client`: whose it is.
    Entry(RequestsUnderWay& all, std::string_view id, std::string client);
    ~Entry();
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

    // The body gives it this id, too; empty: it does not.
    void add_id(std::string_view id);
    // The engine has accepted one of its prompts. If the request has been aborted, so is that.
    void add(engine::RequestId request);

   private:
    RequestsUnderWay& all_;
    std::list<Record>::iterator at_;
  };

  // Aborts those with one of these ids, as they were given or as answers show them ("cmpl-ID");
  // without ids all; of this client, or of all clients. Returns their number.
  std::size_t abort(const std::vector<std::string>& ids, const std::optional<std::string>& client);

 private:
  engine::Engine& engine_;
  std::mutex lock_;
  std::list<Record> records_;
};

}  // namespace motley::server
