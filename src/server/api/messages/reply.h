#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/calls/call_input.h"
#include "server/api/messages/request.h"
#include "server/api/reply.h"
#include "serving/forms/output_parser.h"

namespace motley::server {

// An answer as Anthropic's message: blocks of thinking, text and calls, in the model's order.
class MessagesReply final : public Reply {
 public:
  MessagesReply(std::string id, MessagesRequest request,
                std::unique_ptr<serving::OutputParser> parser);

  void keep(const serving::ChoiceUpdate& update) override;
  std::size_t kept_bytes() const override { return kept_bytes_; }
  std::string next_piece(const serving::Transcript& transcript) override;
  std::string events(const serving::ChoiceUpdate& update,
                     const serving::Transcript& transcript) override;
  std::string last_events(const serving::Transcript& transcript) override;
  std::string failure_events(const Error& error) override;

 private:
  // Receives blocks as the model writes them.
  class BlockSink {
   public:
    virtual ~BlockSink() = default;
    virtual void begin(serving::OutputKind kind, const serving::CallPiece& call) = 0;
    // For a call: the next part of a JSON object.
    virtual void add(serving::OutputKind kind, std::string_view text) = 0;
    virtual void end(serving::OutputKind kind) = 0;
  };
  struct Block {
    serving::OutputKind kind = serving::OutputKind::content;
    serving::CallPiece call = {};  // its name and id
    std::string text = {};         // for a call its input, as JSON
  };
  class Keeper;
  class EventWriter;

  void take(const serving::ChoiceUpdate& update, BlockSink& sink);
  void take_text(serving::OutputKind kind, std::string_view text, BlockSink& sink);
  void take_call(const serving::CallPiece& piece, BlockSink& sink);
  void begin_block(serving::OutputKind kind, const serving::CallPiece& call, BlockSink& sink);
  void end_block(BlockSink& sink);
  // {"stop_reason", "stop_sequence"} without braces.
  std::string ending() const;
  std::string begin_stream(const serving::Transcript& transcript);

  std::string id_;
  MessagesRequest request_;
  std::unique_ptr<serving::OutputParser> parser_;
  std::optional<serving::OutputKind> open_;  // the current block
  CallInput input_;                          // of the current call
  bool called_ = false;                      // at least once
  std::optional<engine::FinishReason> end_;
  std::optional<std::size_t> stop_;
  bool begun_ = false;  // the body, or the stream
  bool ended_ = false;

  std::vector<Block> blocks_;  // for the body
  std::size_t kept_bytes_ = 0;
  std::size_t written_ = 0;  // blocks of the body that have been written
  std::size_t index_ = 0;    // of the block in the stream
};

}  // namespace motley::server
