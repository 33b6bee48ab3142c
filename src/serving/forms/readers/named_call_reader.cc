#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "serving/forms/readers/call_reader.h"
#include "serving/forms/readers/json_arguments.h"
#include "serving/forms/tag_search.h"
#include "serving/forms/tool_call.h"

namespace motley::serving {
namespace {

using Progress = CallReader::Progress;

constexpr std::string_view fence = "```";
constexpr std::size_t longest_head = 4096;

// NAME MARK {...}: before the brace are the name and other parts of the form, separated by marks.
class NamedReader final : public CallReader {
 public:
  explicit NamedReader(const CallContext& context) : context_(context) {}

  Progress read(std::string& held, bool last, ParsedOutput& output) override {
    if (at_ == At::head) {
      const Progress progress = read_head(held, last, output);
      if (at_ == At::head) return progress;
    }
    if (at_ == At::arguments) {
      if (!arguments_.read(held, last, output)) return Progress::more;
      if (!arguments_.ended()) return Progress::done;
      if (!fenced_) return Progress::done;
      at_ = At::closing;
    }
    return read_fence(held, last);
  }

 private:
  enum class At : std::uint8_t { head, arguments, closing };

  struct Head {
    std::vector<std::string_view> parts;
    bool fenced = false;
    bool has_arguments = true;
    std::size_t bytes = 0;  // before the arguments
  };

  // Removes a mark between parts from the front; nothing if it may be incomplete.
  std::optional<bool> take_separator(std::string_view& rest, bool last, Head& head) const {
    // The longer fence first.
    for (const std::string_view mark :
         {context_.form.separators[0], context_.form.separators[1], fence}) {
      const Begins begins = begins_with(rest, mark, last);
      if (begins == Begins::perhaps) return std::nullopt;
      if (begins == Begins::no) continue;
      head.fenced = head.fenced || mark.starts_with(fence);
      rest.remove_prefix(mark.size());
      return true;
    }
    return false;
  }

  Progress find_head(std::string_view held, bool last, Head& head) const {
    std::string_view rest = held;
    const Progress otherwise = last || held.size() > longest_head ? Progress::none : Progress::more;
    for (;;) {
      rest.remove_prefix(leading_space(rest));
      const std::size_t name = leading_name(rest);
      head.parts.push_back(rest.substr(0, name));
      rest.remove_prefix(name);
      rest.remove_prefix(leading_space(rest));
      if (rest.empty()) return otherwise;
      const auto separated = take_separator(rest, last, head);
      if (!separated) return otherwise;
      if (*separated) continue;
      head.bytes = held.size() - rest.size();
      if (rest.front() == '{') return Progress::done;
      // A call without arguments may omit them.
      if (head.parts.size() < 2 || !head.parts.back().empty()) return Progress::none;
      head.has_arguments = false;
      for (const std::string_view mark : {context_.form.call_end, context_.form.end}) {
        const Begins begins = begins_with(rest, mark, last);
        if (begins == Begins::yes) return Progress::done;
        if (begins == Begins::perhaps) return otherwise;
      }
      return Progress::none;
    }
  }

  Progress read_head(std::string& held, bool last, ParsedOutput& output) {
    Head head;
    if (const Progress progress = find_head(held, last, head); progress != Progress::done)
      return progress;
    if (!are_known(head.parts)) return Progress::none;
    const std::string_view written = head.parts[name_at(head.parts)];
    const std::string_view name = clean(written);
    if (!context_.accepts(name)) return Progress::none;
    output.begin_call(name, id_of(head.parts, written));
    fenced_ = head.fenced;
    if (!head.has_arguments) output.add_arguments("{}");
    at_ = head.has_arguments ? At::arguments : At::closing;
    held.erase(0, head.bytes);
    return Progress::more;
  }

  // DeepSeek's names are preceded by the kind of call.
  static std::size_t name_at(const std::vector<std::string_view>& parts) {
    return parts.size() > 1 && parts[0] == "function" && !parts[1].empty() ? 1 : 0;
  }

  // Nothing follows the name, except an id in Mistral's form.
  bool are_known(const std::vector<std::string_view>& parts) const {
    for (std::size_t at = name_at(parts) + 1; at < parts.size(); ++at) {
      const bool is_id =
          at == 1 && context_.form.ids == CallIds::nine_characters && parts[at].size() == 9;
      if (!parts[at].empty() && !is_id) return false;
    }
    return true;
  }

  // Some models write functions.NAME:INDEX.
  std::string_view clean(std::string_view name) const {
    if (context_.form.ids != CallIds::as_written) return name;
    const std::size_t digits = name.find_last_not_of("0123456789");
    if (digits != std::string_view::npos && digits + 1 < name.size() && name[digits] == ':')
      name = name.substr(0, digits);
    constexpr std::string_view prefix = "functions.";
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
    return name;
  }

  std::string_view id_of(const std::vector<std::string_view>& parts,
                         std::string_view written) const {
    switch (context_.form.ids) {
      case CallIds::as_written:
        return written.find(':') == std::string_view::npos ? std::string_view() : written;
      case CallIds::nine_characters:
        return parts.size() > 1 && parts[1].size() == 9 ? parts[1] : std::string_view();
      case CallIds::any:
        break;
    }
    return {};
  }

  // The end of a code fence around the arguments.
  Progress read_fence(std::string& held, bool last) const {
    if (!fenced_) return Progress::done;
    const std::size_t spaces = leading_space(held);
    const Begins begins = begins_with(std::string_view(held).substr(spaces), fence, last);
    if (begins == Begins::perhaps) return Progress::more;
    if (begins == Begins::yes) held.erase(0, spaces + fence.size());
    return Progress::done;
  }

  CallContext context_;
  At at_ = At::head;
  bool fenced_ = false;
  JsonArguments arguments_;
};

}  // namespace

std::unique_ptr<CallReader> make_named_reader(const CallContext& context) {
  return std::make_unique<NamedReader>(context);
}

}  // namespace motley::serving
