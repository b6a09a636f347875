// Promise: a library of another version is refused with a text that has its path. This program is
// linked to other_version.c in place of libdipc, which is why it includes so little.
#include <dipc.h>

#include <cstdint>
#include <cstdio>
#include <string>

// The rest of the library is not there, and no call of it is reached.
extern "C" {
const char* dipc_error_text(const dipc_error*) { return ""; }
void dipc_error_free(dipc_error*) {}
dipc_status dipc_transport_available(const char*, dipc_error**) { return DIPC_OK; }
}

#include <dipc/library.hpp>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto refused = dipc::check_version();
  if (refused.status() != dipc::Status::unsupported) return 1;
  const std::string text(refused.error().text());
  std::printf("%s\n", text.c_str());
  // The path as it was loaded, which may be written in another way.
  const std::string path(argv[1]);
  return text.find("7.0.0") != std::string::npos &&
                 text.find(path.substr(path.rfind('/'))) != std::string::npos &&
                 text.find("0.1.") != std::string::npos
             ? 0
             : 1;
}
