#include "templates/render.h"

#include "text/jinja/builtins/globals.h"
#include "text/jinja/template.h"

namespace motley::text {

std::tm golden_time() {
  std::tm time{};
  time.tm_year = 126;
  time.tm_mon = 6;
  time.tm_mday = 14;
  time.tm_hour = 9;
  time.tm_min = 5;
  time.tm_sec = 3;
  time.tm_wday = 2;
  time.tm_yday = 194;
  return time;
}

Result<MarkedText> render(std::string_view source, const json::Value& variables,
                          const RenderLimits& limits) {
  MOTLEY_TRY(const jinja::Template compiled, jinja::Template::compile(source, "test"));
  jinja::Runtime runtime(limits, golden_time());
  auto& context = runtime.heap().make<jinja::Dict>();
  MOTLEY_TRY_VOID(add_globals(runtime, context));
  for (const auto& [name, value] : variables.as_object("variables").value()->members()) {
    MOTLEY_TRY(const jinja::Value variable, from_json(runtime, value, true));
    MOTLEY_TRY_VOID(context.set(runtime, runtime.text(name), variable));
  }
  return compiled.render(runtime, context);
}

Result<std::string> render_text(std::string_view source, const RenderLimits& limits) {
  MOTLEY_TRY(MarkedText rendered, render(source, json::Value(json::Object()), limits));
  return std::move(rendered.text);
}

json::Value json_of(std::string_view text) { return json::parse(text, "test").value(); }

}  // namespace motley::text
