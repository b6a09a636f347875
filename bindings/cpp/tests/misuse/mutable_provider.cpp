// flags: -Wall
// says: called by several threads at once
#include <dipc/dipc.hpp>

dipc::Result<void> serve(const dipc::Server& server) {
  return server.serve("table",
                      [calls = 0](dipc::RequestRef)
                          mutable  // misuse
                      { static_cast<void>(calls); return dipc::Stream(); });
}
