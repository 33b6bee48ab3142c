#pragma once

#include <optional>

// Descriptors of files and sockets, sent from one process to another.
namespace motley::grammar {

// False if it cannot be sent now; errno has the reason.
bool send_descriptor(int socket, int descriptor);

// The descriptor in the next message, which the caller owns; nothing if the sender is gone.
std::optional<int> receive_descriptor(int socket);

}  // namespace motley::grammar
