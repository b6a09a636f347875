// flags: -Werror=unused-result
// says: nodiscard
#include <dipc/dipc.hpp>

void stop(const dipc::Server& server) {
  server.stop();  // misuse
  static_cast<void>(server.stop());
}
