// What connections and requests are bounded by, in the words of the guide.

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/system/files.h"
#include "base/units.h"
#include "engine/requests/event_queue.h"
#include "server/adapter_pushes.h"
#include "server/api/adapter_request.h"
#include "server/api/fields/field_limits.h"
#include "server/api/request_body.h"
#include "server/api/request_charge.h"
#include "server/http/connections/connection_table.h"
#include "server/http/limits/limits.h"
#include "server/http/limits/memory_budget.h"
#include "server/routes/route.h"
#include "serving/memory_plan.h"

namespace motley::server {
namespace {

struct Bound {
  std::string what;
  std::string at_most;
  std::string_view option;
  std::string_view beyond;  // what a client sees
};

// "16 MiB"
std::string bytes(std::uint64_t count) {
  std::string text = format_bytes(count);
  if (const std::size_t zero = text.find(".0 "); zero != text.npos) text.erase(zero, 2);
  return text;
}

// "75 s"
std::string seconds(std::chrono::nanoseconds time) {
  return cat(std::chrono::duration<double>(time).count(), " s");
}

std::string part(std::uint64_t of) { return cat("1/", of); }

std::string reserve_of(const std::size_t reserved_part) {
  return cat(part(reserved_part), " is kept for addresses that hold at most ",
             bytes(MemoryBudget::small_bytes));
}

std::vector<Bound> connection_bounds() {
  const HttpLimits limits;
  return {
      {"open connections",
       cat(limits.connections, "; ", limits.address_connections, " from one address; ",
           part(ConnectionTable::reserved_part), " is kept for addresses without any"),
       "`--max-connections`, half of it from one address",
       "a connection that waits for its client's request is closed, of the address with the most; "
       "503 and the end where none has more"},
      {"open files that connections leave for others",
       cat(reserved_descriptors, ", at most ", part(reserved_descriptors_part), " of the limit"),
       "", "as above, with fewer connections"},
      {"connections that are refused and read why", cat(ConnectionTable::max_refused), "",
       "the oldest ends"},
      {"time for a request to come, and until the first begins", seconds(limits.request_time),
       "`--client-timeout`", "408 and the end; the end where nothing has come"},
      {"time between requests", seconds(limits.idle_time), "", "the end"},
      {cat("time in which ", bytes(limits.write_progress_bytes), " of an answer are taken"),
       seconds(limits.write_time), "`--client-timeout`", "the end, by a reset"},
      {cat("time for the next ", bytes(limits.write_progress_bytes), " of a streamed body"),
       seconds(limits.request_time), "`--client-timeout`", "408 and the end"},
      {"sent during an answer, and kept for the next request", bytes(limits.pipelined_bytes), "",
       "if the answer takes longer than a moment, the rest is dropped, and the end comes after the "
       "answer"},
      {"sent in vain: during an answer, or after the last one", bytes(linger_bytes), "", "the end"},
      {"part of a stream that a slow client has not taken", bytes(limits.stream_backlog_bytes), "",
       "the end, by a reset"},
      {"whole answer that is sent at once", bytes(limits.whole_answer_bytes), "",
       "it comes in chunks"},
      {"time to read an answer that ends the connection", seconds(limits.linger_time), "",
       "the end"},
      {"the same while the server drains", seconds(limits.drain_linger_time), "", "the end"},
      {"time for the rest of a half-sent request while the server drains",
       seconds(limits.drain_request_time), "", "503 and the end"},
      {"time for running answers while the server drains", seconds(default_drain_time),
       "`--drain-timeout`", "the end"},
  };
}

std::vector<Bound> request_bounds() {
  const HttpLimits limits;
  const RequestLimits one;
  constexpr std::uint64_t total = std::uint64_t{1} << 30;
  return {
      {"head", bytes(limits.header_bytes), "",
       "413; 414 where the target alone is that long; 400 or 501 where it has several meanings"},
      {"body",
       cat(bytes(limits.body_bytes), "; ", bytes(max_adapter_request_bytes),
           " on routes that change the server; ", bytes(max_request_ids_bytes),
           " for ids of requests to abort; ", bytes(Route::unread_body_bytes),
           " where a route reads none"),
       "", "413, when it is announced; compressed ones also when they are decoded"},
      {"extensions of chunks, and trailers", bytes(limits.chunk_extra_bytes), "", "413"},
      {"bodies of all requests, until they are read",
       cat(bytes(limits.all_bodies_bytes), "; ", bytes(limits.address_bodies_bytes),
           " from one address, ", part(MemoryBudget::client_part), " with a key; ",
           reserve_of(MemoryBudget::reserved_part)),
       "", "429, which names the limit"},
      {"JSON",
       cat("depth ", body_limits.depth, "; ", body_limits.values,
           " values; no key twice; valid UTF-8"),
       "", "400"},
      {"prompt", "the model's context; bytes are checked before they are tokenised", "",
       "400, `context_length_exceeded`"},
      {"tokens of all prompts", cat(field_limits::prompt_tokens.most), "", "400"},
      {"answers (`prompt` and `n`)",
       cat(field_limits::sequences.most, "; `n` ", field_limits::choices.most), "", "400"},
      {"memory that a request can come to (prompts, `n`, `echo`, `logprobs`, `stop`)",
       bytes(one.memory_bytes), "", "413, with the figure; an error where its answer grows beyond"},
      {"bytes of its answer", bytes(one.answer_bytes), "", "413, with the figure"},
      {"memory of all requests",
       cat(bytes(serving::max_request_memory), ", at most ",
           part(total / serving::default_request_memory(total)),
           " of the memory that may be used; ", part(MemoryBudget::client_part),
           " from one address; ", reserve_of(MemoryBudget::reserved_part)),
       "`--request-memory`", "429, with the figures"},
      {"files of pushed adapters, with those that are coming",
       cat(part(total / serving::default_push_memory(total)), " of the memory that may be used"),
       "`--push-memory`", "413 for more than that, 429 with `Retry-After` where others hold it"},
      {"adapter memory of old versions that requests still use",
       part(AdapterPushes::old_versions_part), "", "429 with `Retry-After` for a push"},
      {"`version` of a push", cat(max_version_bytes, " bytes"), "", "400"},
      {"`operation_id` of a push", cat(max_operation_id_bytes, " bytes"), "", "400"},
      {"answers that are repeated for an `operation_id`",
       cat(PushOperations::max_answers, ", each of at most ",
           bytes(PushOperations::max_answer_bytes)),
       "", "an older push that comes again is done again"},
      {"events of an answer that is not streamed, and not taken yet",
       bytes(engine::EventQueue::default_max_bytes), "", "an error"},
  };
}

std::string table_of(std::string_view subject, const std::vector<Bound>& bounds) {
  std::string table =
      cat("| ", subject, " | at most | option | beyond it a client sees |\n|---|---|---|---|\n");
  for (const Bound& each : bounds)
    table += cat("| ", each.what, " | ", each.at_most, " | ", each.option,
                 each.option.empty() ? "" : " ", "| ", each.beyond, " |\n");
  return table;
}

TEST(Bounds, StandInTheGuide) {
  const std::string guide = read_text(MOTLEY_OPERATION_GUIDE, 1 << 20).value();
  for (const std::string& table : {table_of("of a connection", connection_bounds()),
                                   table_of("of a request", request_bounds())})
    EXPECT_THAT(guide, testing::HasSubstr(table)) << "the guide has to have this table:\n" << table;
}

}  // namespace
}  // namespace motley::server
