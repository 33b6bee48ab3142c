#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "server/output/output_parser.h"
#include "server/output/tool_form.h"
#include "server/output/tool_schemas.h"

namespace motley::server {

// Reads one call as it comes, from behind the marks before it to before those behind it. A call
// begins as soon as it is sure to be one, which is where its arguments begin.
class CallReader {
 public:
  enum class Progress : std::uint8_t {
    more,  // goes on when more has come
    done,  // behind the call
    none,  // there is no call, and `held` is as it was
  };

  virtual ~CallReader() = default;

  // Uses up text from the front of `held`. `last`: no more comes behind it.
  virtual Progress read(std::string& held, bool last, ParsedOutput& output) = 0;

  // What stood inside the call and is no part of it.
  const std::string& stray() const { return stray_; }

 protected:
  std::string stray_;
};

// A reader that goes from state to state, as far as the text allows.
class SteppedCallReader : public CallReader {
 public:
  Progress read(std::string& held, bool last, ParsedOutput& output) final {
    for (;;) {
      const Progress progress = step(held, last, output);
      if (!std::exchange(moved_, false)) return progress;
    }
  }

 protected:
  // Reads in one state; read() returns what it returns, unless it has moved on.
  virtual Progress step(std::string& held, bool last, ParsedOutput& output) = 0;
  Progress moved_on() {
    moved_ = true;
    return Progress::more;
  }

 private:
  bool moved_ = false;
};

// What a reader must know. All of it must outlive the reader.
struct CallContext {
  const ToolForm& form;
  const ToolSchemas& tools;
  // A mark says that a call comes. Without one only functions that the request names are called.
  bool marked = true;

  bool accepts(std::string_view name) const {
    if (name.empty()) return false;
    if (marked && !form.known_names) return true;
    return tools.empty() ? is_plausible(name) : tools.has(name);
  }

 private:
  static bool is_plausible(std::string_view name);
};

// The reader of what `text` begins with. Null where that is no call in this form; `undecided` where
// more must come first.
struct CallStart {
  std::unique_ptr<CallReader> reader;
  bool undecided = false;
};
CallStart start_call(const CallContext& context, std::string_view text, bool last);

// One reader a kind of body. `text` is what the call begins with.
std::unique_ptr<CallReader> make_json_reader(const CallContext& context, std::string_view text);
std::unique_ptr<CallReader> make_named_reader(const CallContext& context);
std::unique_ptr<CallReader> make_pairs_reader(const CallContext& context);
std::unique_ptr<CallReader> make_python_reader(const CallContext& context);
std::unique_ptr<CallReader> make_gemma_reader(const CallContext& context);

}  // namespace motley::server
