#include "serving/forms/tool_form.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "base/json/json.h"
#include "forms/tool_form_vectors.h"
#include "serving/forms/form_parser.h"
#include "serving/forms/parser_checks.h"

namespace motley::serving {
namespace {

using tool_form_vectors::tools;
using tool_form_vectors::Vector;
using tool_form_vectors::vectors;

std::string read_in_pieces(const FormParser::Options& options, std::string_view text,
                           std::size_t piece, std::size_t first) {
  FormParser parser(options);
  ParsedOutput output = parser.push(text.substr(0, first));
  for (std::size_t at = first; at < text.size(); at += piece)
    output.append(parser.push(text.substr(at, piece)));
  output.append(parser.finish());
  return described(output);
}

TEST(ToolForms, MeanWhatModelsWrite) {
  for (const Vector& vector : vectors) {
    SCOPED_TRACE(testing::Message() << vector.form << ": " << vector.text);
    FormParser::Options options{.reasoning = find_reasoning_form(vector.reasoning),
                                .begins_reasoning = vector.begun,
                                .calls = find_tool_form(vector.form),
                                .one_call = vector.one_call};
    ASSERT_NE(options.calls, nullptr);
    if (vector.tools_known) options.tools = ToolSchemas(json::parse(tools, "tools").value());
    const std::size_t size = vector.text.size();
    EXPECT_EQ(read_in_pieces(options, vector.text, size, size), vector.expected);
    EXPECT_EQ(read_in_pieces(options, vector.text, 1, 0), vector.expected) << "byte by byte";
    for (std::size_t cut = 1; cut < size; ++cut) {
      ASSERT_EQ(read_in_pieces(options, vector.text, size, cut), vector.expected)
          << "cut at " << cut;
    }
  }
}

TEST(ToolForms, HaveVectorsEach) {
  for (const ToolForm& form : tool_forms()) {
    if (form.body == CallBody::harmony) continue;  // has tests of its own
    EXPECT_TRUE(std::ranges::find(vectors, form.name, &Vector::form) != vectors.end()) << form.name;
  }
}

}  // namespace
}  // namespace motley::serving
