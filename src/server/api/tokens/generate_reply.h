#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/api/fields/kept_tokens.h"
#include "server/api/fields/token_lists.h"
#include "server/api/reply.h"
#include "server/api/reply_parts.h"
#include "server/api/tokens/generate_request.h"
#include "text/tokenizer.h"

namespace motley::server {

// The answer in numbers: ids of tokens, their log-probabilities and ranks, and the versions of the
// weights that made them.
class GenerateReply final : public Reply {
 public:
  // The tokenizer must outlive the reply.
  GenerateReply(ReplyHead head, GenerateRequest request, const text::Tokenizer& tokenizer);

  void keep(const serving::ChoiceUpdate& update) override;
  std::size_t kept_bytes() const override { return kept_bytes_; }
  std::string next_piece(const serving::Transcript& transcript) override;
  std::string events(const serving::ChoiceUpdate& update,
                     const serving::Transcript& transcript) override;
  std::string last_events(const serving::Transcript& transcript) override;
  std::string failure_events(const Error& error) override { return failure_event(error); }

 private:
  struct Choice {
    KeptTokens tokens;
    std::string text;
    std::int64_t drawn = 0;  // tokens
    std::optional<engine::FinishReason> end;
    std::string stop_reason = "null";  // as JSON
  };
  // The parts of a body, in order; those up to `choice_end` for each choice.
  enum class Part : std::uint8_t {
    choice,
    token_ids,
    scores,
    routed,
    choice_end,
    prompt_scores,
    named_scores,
    prompt_ids,
    end
  };

  bool with_logprobs() const { return request_.fields.sampling.logprobs; }
  std::size_t top() const { return request_.fields.sampling.alternatives(); }
  std::string stop_reason(const serving::ChoiceUpdate& update) const;
  // The beginning of a choice up to its tokens, and what stands after its log-probabilities.
  std::string opening(std::size_t index, const Choice& choice) const;
  static std::string closing(std::size_t index, const Choice& choice,
                             const serving::Transcript& transcript);
  void append_score(std::string& text, const KeptTokens& tokens, std::size_t at) const;
  // The experts of a choice, where it has ended.
  bool write_experts(std::string& piece, ListPlace& place, std::size_t index, bool ended,
                     const serving::Transcript& transcript) const;
  // Writes the part that is next, or its rest up to the size of a piece. True at its end.
  bool write_part(std::string& piece, const serving::Transcript& transcript);
  bool write_prompt_part(std::string& piece, const serving::Transcript& transcript);
  Part next_part();

  ReplyHead head_;
  GenerateRequest request_;
  const text::Tokenizer& tokenizer_;
  std::vector<Choice> choices_;
  std::size_t kept_bytes_ = 0;
  bool sent_prompt_ = false;  // in an event

  // The position in the body.
  bool begun_ = false;
  Part part_ = Part::choice;
  std::size_t choice_ = 0;
  ListPlace entry_;
};

}  // namespace motley::server
