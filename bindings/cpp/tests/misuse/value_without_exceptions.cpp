// flags: -fno-exceptions
// says: compiled without exceptions
#include <dipc/dipc.hpp>

bool make() {
  auto client = dipc::Client::make();
  client.value();  // misuse
  return client.ok();
}
