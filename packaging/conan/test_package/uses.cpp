// The C++ headers of the package: a server listens, which needs the library's threads.
#include <dipc/dipc.hpp>

#include <cstdio>

int main() {
  const auto version = dipc::check_version();
  if (!version) {
    std::fprintf(stderr, "%s\n", version.error().text().data());
    return 1;
  }
  auto server = dipc::Server::make();
  if (!server) return 1;
  std::printf("libdipc %s\n", dipc::version());
  return 0;
}
