// The routes of the service: a row each, and nothing else to declare.

#include <array>

#include "server/api/adapter_request.h"
#include "server/api/messages/error.h"
#include "server/routes/route_table.h"
#include "server/service.h"

namespace motley::server {

const RouteTable& Service::routes() {
  static constexpr std::array rows = {
      Route::get("/", handler<&Service::playground>).for_anyone(),
      Route::get("/health", handler<&Service::health>).for_anyone(),
      Route::get("/livez", handler<&Service::live>).for_anyone(),
      Route::get("/liveness", handler<&Service::live>).for_anyone(),
      Route::get("/readyz", handler<&Service::health>).for_anyone(),
      Route::get("/ping", handler<&Service::ping>).for_anyone(),
      Route::post("/ping", handler<&Service::ping>).for_anyone().without_body(),
      Route::get("/metrics", handler<&Service::metrics>).for_anyone().with_exact_path(),
      Route::get("/version", handler<&Service::version>),
      Route::get("/tokenizer_info", handler<&Service::tokenizer_info>),
      Route::post("/tokenize", handler<&Service::tokenize>),
      Route::post("/v1/tokenize", handler<&Service::tokenize>),
      Route::post("/detokenize", handler<&Service::detokenize>),
      Route::post("/v1/detokenize", handler<&Service::detokenize>),
      Route::get("/v1/models", handler<&Service::list_models>),
      Route::get("/v1/models/{model}", handler<&Service::one_model>),
      Route::post("/v1/completions", handler<&Service::completions>),
      Route::post("/v1/chat/completions", handler<&Service::chat_completions>),
      Route::post("/v1/completions/render", handler<&Service::render_completion>),
      Route::post("/v1/chat/completions/render", handler<&Service::render_chat>),
      Route::post("/v1/responses", handler<&Service::responses>),
      Route::post("/v1/messages", handler<&Service::messages>).with_errors(messages_error),
      Route::post("/v1/messages/count_tokens", handler<&Service::count_tokens>)
          .with_errors(messages_error),
      Route::post("/inference/v1/generate", handler<&Service::generate_tokens>),
      Route::post("/skyrl/v1/generate", handler<&Service::generate_tokens>),
      Route::post("/v1/load_lora_adapter", handler<&Service::load_adapter>)
          .for_operators()
          .with_body(max_adapter_request_bytes)
          .with_errors(adapter_error),
      Route::post("/v1/unload_lora_adapter", handler<&Service::unload_adapter>)
          .for_operators()
          .with_body(max_adapter_request_bytes)
          .with_errors(adapter_error),
      Route::get("/v1/adapters", handler<&Service::list_adapters>)
          .with_exact_path()
          .with_errors(adapter_error),
      // How much may come is asked of the memory for it.
      Route::put("/v1/adapters/{name}", handler<&Service::put_adapter>)
          .for_operators()
          .with_streamed_body(Route::any_body_bytes)
          .with_errors(adapter_error),
      Route::get("/v1/adapters/{name}", handler<&Service::get_adapter>)
          .with_exact_path()
          .with_errors(adapter_error),
      Route::remove("/v1/adapters/{name}", handler<&Service::delete_adapter>)
          .for_operators()
          .with_errors(adapter_error),
      Route::post("/load_lora_adapter", trainer<&TrainerRoutes::load>)
          .for_operators()
          .with_body(max_adapter_request_bytes)
          .with_errors(in_place_error),
      Route::post("/unload_lora_adapter", trainer<&TrainerRoutes::unload>)
          .for_operators()
          .with_body(max_adapter_request_bytes)
          .with_errors(in_place_error),
      Route::post("/skyrl/v1/load_lora_adapter", trainer<&TrainerRoutes::load>)
          .for_operators()
          .with_body(max_adapter_request_bytes)
          .with_errors(in_place_error),
      Route::post("/skyrl/v1/unload_lora_adapter", trainer<&TrainerRoutes::unload>)
          .for_operators()
          .with_body(max_adapter_request_bytes)
          .with_errors(in_place_error),
      Route::post("/pause", trainer<&TrainerRoutes::pause>)
          .for_operators()
          .with_body(max_adapter_request_bytes),
      Route::post("/resume", trainer<&TrainerRoutes::resume>)
          .for_operators()
          .with_body(max_adapter_request_bytes),
      Route::get("/is_paused", trainer<&TrainerRoutes::is_paused>),
      Route::post("/abort_requests", trainer<&TrainerRoutes::abort_requests>)
          .with_body(max_request_ids_bytes),
      Route::post("/inference/v1/abort_requests", trainer<&TrainerRoutes::abort_requests>)
          .with_body(max_request_ids_bytes),
      Route::post("/reset_prefix_cache", trainer<&TrainerRoutes::reset_prefix_cache>)
          .for_operators()
          .with_body(max_adapter_request_bytes),
      Route::post("/reset_mm_cache", trainer<&TrainerRoutes::reset_nothing>)
          .for_operators()
          .without_body(),
      Route::post("/reset_encoder_cache", trainer<&TrainerRoutes::reset_nothing>)
          .for_operators()
          .without_body(),
      Route::get("/server_info", trainer<&TrainerRoutes::server_info>),
      Route::get("/get_world_size", trainer<&TrainerRoutes::world_size>),
      Route::post("/sleep", trainer<&TrainerRoutes::sleep>).for_operators().without_body(),
      Route::post("/wake_up", trainer<&TrainerRoutes::sleep>).for_operators().without_body(),
      Route::get("/is_sleeping", trainer<&TrainerRoutes::is_sleeping>),
      Route::get("/art/capabilities", art<&ArtRoutes::capabilities>),
      Route::get("/art/state", art<&ArtRoutes::state>),
      Route::post("/art/in_flight_lora_update", art<&ArtRoutes::update>)
          .for_operators()
          .with_body(max_adapter_request_bytes)
          .with_errors(adapter_error),
      // The base's weights: vLLM's routes, then those of SGLang and of trainers.
      Route::post("/init_weight_transfer_engine", trainer<&TrainerRoutes::refuse_weights>),
      Route::post("/shutdown_weight_transfer_engine", trainer<&TrainerRoutes::refuse_weights>),
      Route::post("/start_weight_update", trainer<&TrainerRoutes::refuse_weights>),
      Route::post("/start_draft_weight_update", trainer<&TrainerRoutes::refuse_weights>),
      Route::post("/update_weights", trainer<&TrainerRoutes::refuse_weights>),
      Route::post("/finish_weight_update", trainer<&TrainerRoutes::refuse_weights>),
      Route::post("/update_weight_version", trainer<&TrainerRoutes::refuse_weights>),
      Route::get("/weight_info", trainer<&TrainerRoutes::refuse_weights>),
      Route::post("/weight_checker", trainer<&TrainerRoutes::refuse_weights>),
      Route::post("/collective_rpc", trainer<&TrainerRoutes::refuse_weights>),
      Route::post("/init_broadcaster", trainer<&TrainerRoutes::refuse_weights>),
      Route::post("/init_communicator", trainer<&TrainerRoutes::refuse_weights>),
      Route::post("/update_named_param", trainer<&TrainerRoutes::refuse_weights>),
      Route::post("/update_weights_from_disk", trainer<&TrainerRoutes::refuse_weights>),
      Route::post("/update_weights_from_tensor", trainer<&TrainerRoutes::refuse_weights>),
      Route::post("/update_weights_from_distributed", trainer<&TrainerRoutes::refuse_weights>),
  };
  // The other routes of Anthropic, which this server does not have: their 404 has its form, too.
  static constexpr RouteTable table(rows,
                                    {.prefix = "/v1/messages/", .write_error = messages_error});
  return table;
}

}  // namespace motley::server
