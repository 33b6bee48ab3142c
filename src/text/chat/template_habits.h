#pragma once

#include <cstdint>
#include <string_view>

#include "base/function_ref.h"
#include "base/result.h"
#include "text/chat/marked_text.h"

namespace motley::text {

struct ChatInputs;

// The forms of content that a template accepts for a role: a string, or a list of parts.
enum class ContentForm : std::uint8_t {
  text,      // strings only: parts are joined without separator
  parts,     // lists only: a string becomes a list of one part
  one_part,  // lists, of which only the first part is read
  both,
};

// What a template expects of its inputs, found by probing it.
struct TemplateHabits {
  struct ContentForms {
    ContentForm system = ContentForm::text;  // and developer
    ContentForm user = ContentForm::text;    // and for the template's own roles
    ContentForm assistant = ContentForm::text;
    ContentForm tool = ContentForm::text;

    ContentForm of(std::string_view role) const;
    bool operator==(const ContentForms&) const = default;
  };

  ContentForms content;
  bool wants_argument_strings = false;  // of tool calls, as JSON text instead of mappings
  bool wants_null_content = false;      // beside tool calls, instead of ""

  bool operator==(const TemplateHabits&) const = default;
};

// The rendering of a probe.
struct Probed {
  Result<MarkedText> text;
  bool raised = false;  // by raise_exception
};
using RenderProbe = FunctionRef<Probed(const ChatInputs&, const TemplateHabits&)>;

// Renders a few small conversations, and examines the results.
TemplateHabits find_habits(RenderProbe render);

}  // namespace motley::text
