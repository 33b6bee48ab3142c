#include <optional>
#include <utility>

#include "base/cat.h"
#include "serving/forms/readers/call_reader.h"
#include "serving/forms/readers/json_arguments.h"
#include "serving/forms/readers/python_literal.h"
#include "serving/forms/tag_search.h"
#include "serving/forms/tool_call.h"

namespace motley::serving {
namespace {

using Progress = CallReader::Progress;

// With the name first; objects in another order are read when complete.
constexpr std::size_t longest_head = 4096;

bool has_single_quotes(std::string_view text) {
  const std::size_t first = 1 + leading_space(text.substr(1));
  return first < text.size() && text[first] == '\'';
}

// {"name": NAME, "arguments": {...}}. Arguments are streamed if the name comes first; otherwise the
// object is read when it is complete.
class JsonReader final : public CallReader {
 public:
  JsonReader(const CallContext& context, std::string_view text)
      : context_(context),
        outer_(0, has_single_quotes(text) ? JsonExtent::Quotes::python : JsonExtent::Quotes::json) {
  }

  Progress read(std::string& held, bool last, ParsedOutput& output) override {
    if (at_ == At::head) {
      const Progress progress = read_head(held, last, output);
      if (at_ == At::head) return progress;
    }
    if (at_ == At::arguments) {
      if (!arguments_.read(held, last, output)) return Progress::more;
      if (!arguments_.ended()) return Progress::done;
      at_ = At::tail;
    }
    return read_tail(held, last);
  }

 private:
  enum class At : std::uint8_t { head, arguments, tail };

  Progress read_head(std::string& held, bool last, ParsedOutput& output) {
    if (!may_be_json_call(held)) return Progress::none;
    const auto head = read_json_call_head(std::string_view(held).substr(0, longest_head));
    if (head) {
      if (!context_.accepts(head->name)) return Progress::none;
      output.begin_call(head->name);
      held.erase(0, head->bytes);
      at_ = At::arguments;
      return Progress::more;
    }
    scanned_ += outer_.take(std::string_view(held).substr(scanned_));
    if (!outer_.ended()) return last || outer_.broken() ? Progress::none : Progress::more;
    const auto call = whole_call(std::string_view(held).substr(0, scanned_));
    if (!call || !context_.accepts(call->name)) return Progress::none;
    output.begin_call(call->name);
    output.add_arguments(call->arguments);
    held.erase(0, scanned_);
    return Progress::done;
  }

  static std::optional<ToolCall> whole_call(std::string_view text) {
    if (auto call = parse_json_call(text)) return call;
    const auto literal = python_literal_to_json(text);
    return literal ? parse_json_call(*literal) : std::nullopt;
  }

  // The rest of the object after its arguments. If its closing brace is missing, it ends with them.
  static Progress read_tail(std::string& held, bool last) {
    const std::size_t spaces = leading_space(held);
    if (spaces == held.size()) return last ? Progress::done : Progress::more;
    if (held[spaces] != ',' && held[spaces] != '}') return Progress::done;
    JsonExtent rest(1);
    const std::size_t bytes = rest.take(held);
    if (!rest.ended()) return last || rest.broken() ? Progress::done : Progress::more;
    const std::string members = cat("{\"name\":0", std::string_view(held).substr(0, bytes));
    if (json::parse(members, "tool call").ok()) held.erase(0, bytes);
    return Progress::done;
  }

  CallContext context_;
  At at_ = At::head;
  JsonExtent outer_;
  std::size_t scanned_ = 0;
  JsonArguments arguments_;
};

}  // namespace

std::unique_ptr<CallReader> make_json_reader(const CallContext& context, std::string_view text) {
  return std::make_unique<JsonReader>(context, text);
}

}  // namespace motley::serving
