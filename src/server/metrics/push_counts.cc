#include "server/metrics/push_counts.h"

#include "base/cat.h"
#include "server/metrics/page.h"

namespace motley::server {

void PushCounts::count(int status) {
  if (status == 200) return count(Outcome::done);
  if (status == 409) return count(Outcome::conflict);
  if (status == 413 || status == 429 || status == 503 || status == 507)
    return count(Outcome::no_room);
  count(status == 408 || status >= 499 ? Outcome::failed : Outcome::refused);
}

std::string push_metrics(const PushCounts& counts, const PushFigures& held) {
  MetricsPage page;
  page.family("motley_adapter_pushes_total", "counter",
              "Pushes of adapters, by what came of them.");
  for (std::size_t i = 0; i < PushCounts::names.size(); ++i)
    page.sample(metric_label("outcome", PushCounts::names[i]),
                counts.of(static_cast<PushCounts::Outcome>(i)));
  page.counter("motley_adapter_push_bytes_total", "Bytes of pushed adapters that have come.",
               counts.bytes());
  page.gauge("motley_push_contents", "Contents of pushed adapters that are held.", held.contents);
  page.gauge("motley_push_memory_bytes", "Their bytes, with those that are coming.",
             held.used_bytes);
  page.gauge("motley_push_memory_limit_bytes", "At most.", held.limit_bytes);
  return std::move(page).take();
}

}  // namespace motley::server
