// flags: -Wall
// says: StreamTraits
#include <dipc/dipc.hpp>

int number();

dipc::Result<void> serve(const dipc::Server& server) {
  const auto provider = [](dipc::RequestRef) { return dipc::Stream(); };
  server.serve("number", [](dipc::RequestRef) { return number(); }).ok();  // misuse
  return server.serve("table", provider);
}
