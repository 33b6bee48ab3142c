#include <array>
#include <cstdint>

#include "base/log.h"
#include "base/system/out_of_memory.h"
#include "base/system/process_figures.h"
#include "base/version.h"
#include "server/metrics/metrics.h"
#include "server/metrics/page.h"

namespace motley::server {
namespace {

#ifdef __clang__
constexpr std::string_view compiler = __VERSION__;
#else
constexpr std::string_view compiler = "g++ " __VERSION__;
#endif

// Under the names that all of Prometheus' clients use.
void write_figures(MetricsPage& page) {
  const ProcessFigures figures = process_figures();
  page.counter("process_cpu_seconds_total", "Processor time of the process and its threads.",
               figures.cpu_seconds);
  page.gauge("process_start_time_seconds", "When the process began, since the epoch.",
             figures.start_seconds);
  page.gauge("process_resident_memory_bytes", "Memory that is resident.", figures.resident_bytes);
  page.gauge("process_virtual_memory_bytes", "Addresses that are mapped.", figures.virtual_bytes);
  page.gauge("process_open_fds", "Open files and sockets.", figures.open_files);
  page.gauge("process_max_fds", "At most.", figures.max_files);
  page.gauge("process_threads", "Threads.", figures.threads);
}

}  // namespace

std::string pause_metrics(const engine::Pauses& pauses) {
  MetricsPage page;
  page.gauge("motley_paused", "Whether all requests are paused.", pauses.all() ? 1 : 0);
  page.gauge("motley_paused_adapters", "Adapters that are paused by themselves.",
             pauses.adapters().size());
  return std::move(page).take();
}

std::string process_metrics(const Watchdog* watchdog) {
  MetricsPage page;
  page.family("motley_build_info", "gauge", "What this program was built from.");
  page.sample(joined_labels(metric_label("version", version()), metric_label("compiler", compiler)),
              1);
  write_figures(page);
  page.counter("motley_log_lines_lost_total",
               "Lines of the log that its reader took too slowly, or that no memory was left for.",
               log::lost());
  page.counter("motley_out_of_memory_total", "Times that memory ended in work for one request.",
               out_of_memory_count());
  const auto stalls =
      watchdog == nullptr ? std::array<std::uint64_t, Watchdog::works>{} : watchdog->stalls();
  page.family("motley_watchdog_stalls_total", "counter",
              "Work that took longer than --watchdog, by what it was.");
  for (std::size_t i = 0; i < stalls.size(); ++i)
    page.sample(cat("what=\"", Watchdog::name(static_cast<Watchdog::Work>(i)), "\""), stalls[i]);
  return std::move(page).take();
}

}  // namespace motley::server
