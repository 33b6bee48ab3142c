#include "cli/http_answer.h"

#include <algorithm>
#include <charconv>

#include "base/cat.h"

namespace motley::cli {
namespace {

constexpr std::size_t longest_head = 65'536;
constexpr std::size_t longest_line = 1024;  // of a chunk's size, or of a trailer

Error no_answer(std::string what) {
  return {ErrorCode::io, std::move(what), "the server's answer", "check that the URL is motley's"};
}

// The number that the text begins with; its base, where it is not decimal.
template <class Number, class... Base>
std::optional<Number> number(std::string_view text, Base... base) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base...);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

bool same_name(std::string_view one, std::string_view other) {
  const auto small = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::ranges::equal(one, other, {}, small, small);
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

}  // namespace

Result<void> HttpAnswer::take(std::string_view bytes) {
  pending_ += bytes;
  while (true) {
    MOTLEY_TRY(const bool advanced, advance());
    if (!advanced) return {};
  }
}

Result<void> HttpAnswer::end() {
  if (part_ == Part::body_to_end) part_ = Part::nothing;
  if (part_ != Part::nothing)
    return Error(ErrorCode::io, "the server went away in the midst of its answer", "",
                 "see what it says on standard error");
  return {};
}

// One part further; false where that needs more bytes.
Result<bool> HttpAnswer::advance() {
  const auto line_end = [&](std::size_t most) -> Result<std::size_t> {
    const std::size_t at = pending_.find("\r\n");
    if (std::min(at, pending_.size()) > most) return no_answer("a line without end");
    return at;
  };
  switch (part_) {
    case Part::head: {
      const std::size_t end = pending_.find("\r\n\r\n");
      if (std::min(end, pending_.size()) > longest_head) return no_answer("a head without end");
      if (end == std::string::npos) return false;
      const std::string head = pending_.substr(0, end + 2);
      pending_.erase(0, end + 4);
      MOTLEY_TRY_VOID(read_head(head));
      return true;
    }
    case Part::body:
    case Part::body_to_end: {
      const std::uint64_t size = part_ == Part::body_to_end
                                     ? pending_.size()
                                     : std::min<std::uint64_t>(left_, pending_.size());
      body_.append(pending_, 0, size);
      pending_.erase(0, size);
      if (part_ == Part::body_to_end) return false;
      left_ -= size;
      if (left_ > 0) return false;
      part_ = Part::nothing;
      return true;
    }
    case Part::chunk_size: {
      MOTLEY_TRY(const std::size_t end, line_end(longest_line));
      if (end == std::string::npos) return false;
      const auto size = number<std::uint32_t>(pending_, 16);
      if (!size) return no_answer("a chunk without its size");
      pending_.erase(0, end + 2);
      left_ = *size;
      part_ = *size == 0 ? Part::trailer : Part::chunk;
      return true;
    }
    case Part::chunk: {
      const std::uint64_t size = std::min<std::uint64_t>(left_, pending_.size());
      body_.append(pending_, 0, size);
      pending_.erase(0, size);
      left_ -= size;
      if (left_ > 0 || pending_.size() < 2) return false;
      if (!pending_.starts_with("\r\n")) return no_answer("a chunk longer than its size");
      pending_.erase(0, 2);
      part_ = Part::chunk_size;
      return true;
    }
    case Part::trailer: {
      MOTLEY_TRY(const std::size_t end, line_end(longest_line));
      if (end == std::string::npos) return false;
      if (end == 0) part_ = Part::nothing;
      pending_.erase(0, end + 2);
      return true;
    }
    case Part::nothing:
      return false;
  }
  return false;
}

Result<void> HttpAnswer::read_head(std::string_view head) {
  const auto status = head.starts_with("HTTP/1.") && head.size() > 12
                          ? number<int>(head.substr(9, 3))
                          : std::nullopt;
  if (!status) return no_answer("no head of HTTP/1.1");
  if (*status == 100) return {};  // the answer's own head follows
  status_ = *status;
  part_ = Part::body_to_end;
  for (std::size_t line = head.find("\r\n") + 2; line < head.size();) {
    const std::size_t end = head.find("\r\n", line);
    const std::string_view field = head.substr(line, end - line);
    line = end + 2;
    const std::size_t colon = field.find(':');
    if (colon == std::string_view::npos) return no_answer("a head's line without a colon");
    const std::string_view name = field.substr(0, colon);
    const std::string_view value = trimmed(field.substr(colon + 1));
    if (same_name(name, "transfer-encoding")) {
      if (!same_name(value, "chunked")) return no_answer(cat("a body as ", quote(value)));
      part_ = Part::chunk_size;
    } else if (same_name(name, "content-length") && part_ == Part::body_to_end) {
      const auto length = number<std::uint64_t>(value);
      if (!length) return no_answer("a length that is no number");
      left_ = *length;
      part_ = Part::body;
    }
  }
  return {};
}

std::optional<std::string> EventReader::next() {
  while (true) {
    const std::size_t end = pending_.find("\n\n");
    if (end == std::string::npos) return std::nullopt;
    std::string event = pending_.substr(0, end);
    pending_.erase(0, end + 2);
    // Comments, which keep connections alive, are no data.
    if (event.starts_with("data: ")) return event.substr(6);
  }
}

std::optional<double> metric(std::string_view page, std::string_view name) {
  const std::string begin = cat("\n", name, " ");
  const std::size_t at = page.find(begin);
  if (at == std::string_view::npos) return std::nullopt;
  return number<double>(page.substr(at + begin.size()));
}

std::string_view metric_label(std::string_view page, std::string_view name,
                              std::string_view label) {
  const std::string begin = cat("\n", name, "{");
  const std::size_t at = page.find(begin);
  if (at == std::string_view::npos) return {};
  std::string_view sample = page.substr(at + begin.size());
  sample = sample.substr(0, sample.find('}'));
  const std::string key = cat(label, "=\"");
  const std::size_t found = sample.find(key);
  if (found == std::string_view::npos) return {};
  sample.remove_prefix(found + key.size());
  return sample.substr(0, sample.find('"'));
}

}  // namespace motley::cli
