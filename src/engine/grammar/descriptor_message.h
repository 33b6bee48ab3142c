#pragma once

#include <optional>

// Descriptors of files and sockets, sent from one process to another.
namespace motley::engine {

// False where it can't be sent now; errno says why.
bool send_descriptor(int socket, int descriptor);

// The one in the next message, which the caller owns; nothing where the sender is gone.
std::optional<int> receive_descriptor(int socket);

}  // namespace motley::engine
