#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/reply.h"
#include "server/api/responses/items.h"
#include "server/api/responses/request.h"
#include "serving/forms/output_parser.h"

namespace motley::server {

// Writes a response: the model's output as items, in order. A stream reports the begin, growth and
// end of each item, and repeats all of them at its end, so it keeps them as a whole answer does.
class ResponsesReply final : public Reply {
 public:
  // The tokenizer must outlive the reply.
  ResponsesReply(ResponsesRequest request, const text::Tokenizer& tokenizer,
                 std::unique_ptr<serving::OutputParser> parser);

  void keep(const serving::ChoiceUpdate& update) override { take(update); }
  std::size_t kept_bytes() const override { return kept_bytes_; }
  std::string next_piece(const serving::Transcript& transcript) override;
  std::string events(const serving::ChoiceUpdate& update,
                     const serving::Transcript& transcript) override;
  std::string more_events(const serving::Transcript& /*transcript*/) override { return next(); }
  std::string last_events(const serving::Transcript& transcript) override;
  std::string failure_events(const Error& error) override;

 private:
  // The fields of a response besides its items.
  struct Outcome {
    std::string_view status;
    std::string error = "null";
    std::string usage = "null";
    std::string version = {};  // as a member of the object, or nothing
  };

  void take(const serving::ChoiceUpdate& update);
  void take_parts(const serving::ParsedOutput& output);
  void add_text(ResponseItem::Kind kind, std::string_view text);
  void add_call(const serving::CallPiece& piece);
  void grow(std::string_view text);
  void open_item(ResponseItem::Kind kind, const serving::CallPiece& call = {});
  void close_item(ResponseItem::Status status);
  void finish(engine::FinishReason end);
  void count(const serving::ChoiceUpdate& update, serving::OutputSection before);
  // Assigns tokens that wait for their text to the open message.
  std::size_t place_tokens();

  void begin_stream();
  void begin_event(std::string_view name);
  void begin_item_event(std::string_view name);
  void end_event() { script_.add("}\n\n"); }
  void say_response(std::string_view event, const Outcome& outcome);
  void write_response(const Outcome& outcome);
  Outcome outcome(const serving::Transcript& transcript) const;
  std::string usage(const engine::Usage& usage) const;
  std::string next() { return script_.next(piece_bytes); }

  ResponseItem& item() { return items_.back(); }

  ResponsesRequest request_;
  std::string id_;
  std::time_t created_;
  std::unique_ptr<serving::OutputParser> parser_;
  std::vector<ResponseItem> items_;
  ResponseScript script_;
  bool open_ = false;                   // the last item
  serving::ChoiceText::Piece waiting_;  // tokens whose text has not arrived
  std::int64_t reasoning_tokens_ = 0;
  std::optional<engine::FinishReason> end_;
  std::size_t kept_bytes_ = 0;

  bool streams_ = false;
  bool written_ = false;  // the whole answer has been added to the script
  std::int64_t events_ = 0;
};

}  // namespace motley::server
