// Units with and without exceptions stand in one program, and do not take each other's code.
#include "unit.hpp"

#include <stdexcept>

bool without_exceptions();

/// A provider that throws: its trampoline must be of this unit, which catches.
static bool exceptions_are_caught() {
  const auto server = dipc::Server::make().value();
  dipc::Stream (*provider)(dipc::RequestRef) = [](dipc::RequestRef) -> dipc::Stream {
    throw std::runtime_error("caught");
  };
  server.serve("table", provider).value();
  const auto uri = server.listen("shm:@dipc-cpp-unit-throws").value();
  const auto got = dipc::Client::make().value().get(uri, "table");
  return got.status() == dipc::Status::provider;
}

int main() {
  if (!serve_and_fetch([] {}, "shm:@dipc-cpp-unit-with")) return 1;
  if (!without_exceptions()) return 2;
  return exceptions_are_caught() ? 0 : 3;
}
