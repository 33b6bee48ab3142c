#pragma once

#include <cstdint>
#include <string_view>

#include "base/function_ref.h"
#include "base/result.h"
#include "text/chat/marked_text.h"

namespace motley::text {

struct ChatInputs;

// The forms of content that a template takes from messages of a role: a string, or a list of parts.
enum class ContentForm : std::uint8_t {
  text,      // strings alone: parts are joined with nothing between
  parts,     // lists alone: a string becomes a list of one part
  one_part,  // lists of which it reads the first part alone
  both,
};

// What a template wants from its inputs, found out by trying it.
struct TemplateHabits {
  struct ContentForms {
    ContentForm system = ContentForm::text;  // and developer
    ContentForm user = ContentForm::text;    // and roles of the template's own
    ContentForm assistant = ContentForm::text;
    ContentForm tool = ContentForm::text;

    ContentForm of(std::string_view role) const;
    bool operator==(const ContentForms&) const = default;
  };

  ContentForms content;
  bool wants_argument_strings = false;  // of tool calls, as JSON text; else as mappings
  bool wants_null_content = false;      // beside tool calls; else null is ""

  bool operator==(const TemplateHabits&) const = default;
};

// A rendering of a probe.
struct Probed {
  Result<MarkedText> text;
  bool raised = false;  // by raise_exception: in the template's own words
};
using RenderProbe = FunctionRef<Probed(const ChatInputs&, const TemplateHabits&)>;

// Renders a few small conversations, and looks at what comes through.
TemplateHabits find_habits(RenderProbe render);

}  // namespace motley::text
