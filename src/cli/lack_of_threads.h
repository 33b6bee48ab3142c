#pragma once

#include "base/error.h"

namespace motley::cli {

// Of a program that can't start a thread.
Error no_thread_error();

// Ends the program with that error where a thread can't be started and nothing handles it, or what
// handles it can't be reached, because threads that run already would have to be destroyed.
void explain_lack_of_threads();

}  // namespace motley::cli
