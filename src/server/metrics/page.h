#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/cat.h"
#include "engine/stats.h"

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
  void histogram(std::string_view name, std::string_view help, const auto& values) {
    family(name, "histogram", help);
    sum_samples({}, values);
  }
  // Of an engine::Histogram, or an engine::DurationSum.
  template <class Sums>
  void sum_samples(std::string_view labels, const Sums& values) {
    if constexpr (requires { values.bounds; }) {
      std::uint64_t below = 0;
      for (std::size_t i = 0; i < values.bounds.size(); ++i) {
        below += values.counts[i];
        sample(joined_labels(cat("le=\"", values.bounds[i], "\""), labels), below, "_bucket");
      }
      sample(joined_labels("le=\"+Inf\"", labels), values.count, "_bucket");
    }
    sample(labels, values.sum, "_sum");
    sample(labels, values.count, "_count");
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

  // `value` is a member of Stats, or a function of it.
  void gauge(std::string_view name, std::string_view help, auto value) {
    page_.family(name, "gauge", help);
    samples({}, value);
  }
  void counter(std::string_view name, std::string_view help, auto value) {
    page_.family(name, "counter", help);
    samples({}, value);
  }
  void samples(std::string_view labels, auto value) {
    for (const Part& part : parts_)
      page_.sample(joined_labels(labels, part.label), std::invoke(value, *part.stats));
  }
  template <class Histogram>
  void histogram(std::string_view name, std::string_view help, Histogram engine::Stats::* member) {
    page_.family(name, "histogram", help);
    for (const Part& part : parts_) page_.sum_samples(part.label, part.stats->*member);
  }
  void family(std::string_view name, std::string_view type, std::string_view help) {
    page_.family(name, type, help);
  }
  // `write` gets each engine's numbers, and writes samples with further labels.
  void each(auto write) {
    for (const Part& part : parts_) {
      const auto sample = [&](std::string_view labels, const auto& value) {
        if constexpr (requires { value.count; })
          page_.sum_samples(joined_labels(labels, part.label), value);
        else
          page_.sample(joined_labels(labels, part.label), value);
      };
      write(*part.stats, sample);
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
