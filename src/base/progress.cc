#include "base/progress.h"

#include <algorithm>
#include <unistd.h>

#include "base/cat.h"
#include "base/log.h"
#include "base/units.h"

namespace motley {
namespace {

constexpr int bar_width = 30;
constexpr Duration redraw_after = std::chrono::milliseconds(100);
constexpr Duration line_after = std::chrono::seconds(1);
constexpr std::string_view erase_line = "\r\x1b[K";

const SteadyClock steady_clock;

void log_line(std::string_view text) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  log::info("progress", {{"text", text}});
}

}  // namespace

Progress Progress::to_stderr(std::string label, std::uint64_t total, Unit unit) {
  // With JSON, standard error has nothing but JSON lines.
  const bool json = log::settings().format == log::Format::json;
  return Progress({.label = std::move(label),
                   .total = total,
                   .unit = unit,
                   .terminal = !json && ::isatty(STDERR_FILENO) == 1,
                   .sink = json ? log_line : log::write_beside,
                   .clock = &steady_clock});
}

Progress::Progress(Options options)
    : options_(std::move(options)),
      start_(options_.clock->now()),
      // Makes the first report draw at any time.
      last_drawn_(start_ - line_after) {}

void Progress::set(std::uint64_t done) {
  done_ = std::min(done, options_.total);
  const TimePoint now = options_.clock->now();
  if (options_.terminal) {
    if (now - last_drawn_ < redraw_after) return;
    last_drawn_ = now;
    draw_bar();
  } else if (options_.total > 0 && done_ < options_.total) {
    const double share = static_cast<double>(done_) / static_cast<double>(options_.total);
    const auto tenth = static_cast<std::uint64_t>(10 * share);
    if (tenth < next_tenth_ || now - last_drawn_ < line_after) return;
    last_drawn_ = now;
    next_tenth_ = tenth + 1;
    print_line();
  }
}

void Progress::finish() {
  const std::string time = format_seconds(seconds(options_.clock->now() - start_));
  const std::string line = cat(options_.label, ": ", amount(options_.total), " in ", time, "\n");
  options_.sink(options_.terminal ? cat(erase_line, line) : line);
  open_line_ = false;
}

Progress::~Progress() {
  if (open_line_ && options_.sink) options_.sink("\n");
}

void Progress::draw_bar() {
  const double share =
      options_.total == 0 ? 1.0 : static_cast<double>(done_) / static_cast<double>(options_.total);
  const auto filled = static_cast<std::size_t>(share * bar_width);
  options_.sink(cat(erase_line, options_.label, " [", std::string(filled, '#'),
                    std::string(bar_width - filled, '.'), "] ", amount(done_), " of ",
                    amount(options_.total)));
  open_line_ = true;
}

void Progress::print_line() {
  const auto percent =
      static_cast<int>(100.0 * static_cast<double>(done_) / static_cast<double>(options_.total));
  options_.sink(cat(options_.label, ": ", percent, " % (", amount(done_), " of ",
                    amount(options_.total), ")\n"));
}

std::string Progress::amount(std::uint64_t value) const {
  return options_.unit == Unit::bytes ? format_bytes(value) : cat(value);
}

}  // namespace motley
