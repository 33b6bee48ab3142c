#include "server/http/run_context.h"

#include <new>
#include <thread>

#include "base/log.h"

namespace motley::server {

void run_context(boost::asio::io_context& context, FunctionRef<void()> prepare) {
  while (true) {
    try {
      prepare();
      context.run();
      return;
    } catch (const std::bad_alloc&) {
      log::error("http.out_of_memory");
      std::this_thread::sleep_for(shortage_pause);
    }
  }
}

}  // namespace motley::server
