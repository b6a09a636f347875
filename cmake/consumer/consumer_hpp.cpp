// The same with the C++ headers.
#include <dipc/dipc.hpp>

#include <cstdio>

int main() {
  const dipc::Result<void> version = dipc::check_version();
  if (!version) {
    std::fprintf(stderr, "%s\n", version.error().text().data());
    return 1;
  }
  const auto cancel = dipc::Cancel::make();
  if (!cancel || !cancel->trigger() || !cancel->is_triggered()) return 1;
  std::printf("libdipc %s\n", dipc::version());
  return 0;
}
