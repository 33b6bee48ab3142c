#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/cat.h"
#include "engine/stats/metrics.h"
#include "engine/stats/stats.h"

namespace motley::server {

// One sample's labels, as in `adapter="a",replica="0"`.
inline std::string joined_labels(std::string_view labels, std::string_view more) {
  return cat(labels, labels.empty() || more.empty() ? "" : ",", more);
}

// A label with any value.
inline std::string metric_label(std::string_view name, std::string_view value) {
  std::string text = cat(name, "=\"");
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    text += c == '\n' ? std::string_view("\\n") : std::string_view(&c, 1);
  }
  return text + '"';
}

// Writes families of samples in Prometheus' text format.
class MetricsPage {
 public:
  // `common`: labels of every sample.
  explicit MetricsPage(std::string common = {}) : common_(std::move(common)) {}

  void family(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    text_ += cat("# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n");
  }
  // Begins the family of a row; false: the row before it was of the same family.
  bool family(const auto& row) {
    static constexpr std::array<std::string_view, 4> types = {"counter", "gauge", "histogram",
                                                              "summary"};
    if (row.name == name_) return false;
    family(row.name, types[static_cast<std::size_t>(row.kind)], row.help);
    return true;
  }
  void sample(std::string_view labels, auto value, std::string_view suffix = {}) {
    const std::string all = joined_labels(common_, labels);
    text_ +=
        cat(name_, suffix, all.empty() ? "" : "{", all, all.empty() ? "" : "}", " ", value, "\n");
  }
  void gauge(std::string_view name, std::string_view help, auto value) {
    family(name, "gauge", help);
    sample({}, value);
  }
  void counter(std::string_view name, std::string_view help, auto value) {
    family(name, "counter", help);
    sample({}, value);
  }
  // All samples of a number, an engine::Histogram or an engine::DurationSum.
  template <class Value>
  void samples(std::string_view labels, const Value& value) {
    if constexpr (requires { value.bounds; }) {
      std::uint64_t below = 0;
      for (std::size_t i = 0; i < value.bounds.size(); ++i) {
        below += value.counts[i];
        sample(joined_labels(cat("le=\"", value.bounds[i], "\""), labels), below, "_bucket");
      }
      sample(joined_labels("le=\"+Inf\"", labels), value.count, "_bucket");
    }
    if constexpr (requires { value.count; }) {
      sample(labels, value.sum, "_sum");
      sample(labels, value.count, "_count");
    } else {
      sample(labels, value);
    }
  }
  template <class Row>
  void rows(std::span<const Row> table, const typename Row::Owner& owner) {
    for (const Row& row : table) {
      if (row.name.empty()) continue;
      family(row);
      row.read(owner, [&](const auto& value) { samples(row.label, value); });
    }
  }
  std::string take() && { return std::move(text_); }

 private:
  std::string common_;
  std::string text_;
  std::string_view name_;
};

// Writes what engines count: a sample for each, with its label where there are several.
class EngineMetrics {
 public:
  EngineMetrics(MetricsPage& page, const engine::Stats& stats) : page_(page) {
    for (std::size_t i = 0; i < stats.replicas.size(); ++i)
      parts_.push_back({cat("replica=\"", i, "\""), &stats.replicas[i]});
    if (parts_.empty()) parts_.push_back({"", &stats});
  }

  // `value` is a function of Stats.
  void gauge(std::string_view name, std::string_view help, auto value) {
    page_.family(name, "gauge", help);
    each([&](const engine::Stats& stats, const auto& sample) { sample({}, value(stats)); });
  }
  // `owners` calls its second argument for each owner of the rows' members in Stats, with labels.
  template <class Row>
  void rows(std::span<const Row> table, auto owners) {
    for (const Row& row : table) {
      if (row.name.empty()) continue;
      page_.family(row);
      each([&](const engine::Stats& stats, const auto& sample) {
        owners(stats, [&](std::string_view labels, const typename Row::Owner& owner) {
          row.read(owner,
                   [&](const auto& value) { sample(joined_labels(labels, row.label), value); });
        });
      });
    }
  }
  void rows(std::span<const engine::EngineMetric> table) {
    rows(table, [](const engine::Stats& stats, const auto& write) { write({}, stats); });
  }
  void family(std::string_view name, std::string_view type, std::string_view help) {
    page_.family(name, type, help);
  }
  bool family(const auto& row) { return page_.family(row); }
  // `write` gets each engine's numbers, and writes samples with further labels.
  void each(auto write) {
    for (const Part& part : parts_) {
      write(*part.stats, [&](std::string_view labels, const auto& value) {
        page_.samples(joined_labels(labels, part.label), value);
      });
    }
  }

 private:
  struct Part {
    std::string label;
    const engine::Stats* stats;
  };

  MetricsPage& page_;
  std::vector<Part> parts_;
};

}  // namespace motley::server
