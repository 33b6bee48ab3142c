#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "serving/forms/output_parser.h"
#include "serving/forms/tool_form.h"
#include "serving/forms/tool_schemas.h"

namespace motley::serving {

// Reads one call as it arrives, between the marks before and after it. A call begins as soon as it
// is certainly one, which is where its arguments begin.
class CallReader {
 public:
  enum class Progress : std::uint8_t {
    more,  // needs more text
    done,  // after the call
    none,  // no call, and `held` is unchanged
  };

  virtual ~CallReader() = default;

  // Consumes text from the front of `held`. `last`: no more text follows.
  virtual Progress read(std::string& held, bool last, ParsedOutput& output) = 0;

  // Text inside the call that is not part of it.
  const std::string& stray() const { return stray_; }

 protected:
  std::string stray_;
};

// A reader with states, which advances as far as the text allows.
class SteppedCallReader : public CallReader {
 public:
  Progress read(std::string& held, bool last, ParsedOutput& output) final {
    for (;;) {
      const Progress progress = step(held, last, output);
      if (!std::exchange(moved_, false)) return progress;
    }
  }

 protected:
  // Reads in one state. read() returns the result unless the state has changed.
  virtual Progress step(std::string& held, bool last, ParsedOutput& output) = 0;
  Progress moved_on() {
    moved_ = true;
    return Progress::more;
  }

 private:
  bool moved_ = false;
};

// What a reader needs to know. Everything must outlive the reader.
struct CallContext {
  const ToolForm& form;
  const ToolSchemas& tools;
  // A mark announces the call. Without one, only functions that the request names are called.
  bool marked = true;

  bool accepts(std::string_view name) const {
    if (name.empty()) return false;
    if (marked && !form.known_names) return true;
    return tools.empty() ? is_plausible(name) : tools.has(name);
  }

 private:
  static bool is_plausible(std::string_view name);
};

// The reader for the call at the begin of `text`. Null if that is no call in this form; `undecided`
// if more text is needed.
struct CallStart {
  std::unique_ptr<CallReader> reader;
  bool undecided = false;
};
CallStart start_call(const CallContext& context, std::string_view text, bool last);

// One reader for each kind of body. `text` begins with the call.
std::unique_ptr<CallReader> make_json_reader(const CallContext& context, std::string_view text);
std::unique_ptr<CallReader> make_named_reader(const CallContext& context);
std::unique_ptr<CallReader> make_pairs_reader(const CallContext& context);
std::unique_ptr<CallReader> make_python_reader(const CallContext& context);
std::unique_ptr<CallReader> make_gemma_reader(const CallContext& context);

}  // namespace motley::serving
