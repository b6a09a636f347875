// The same without exceptions: each Result is looked at before it is used.
#include <dipc/dipc.hpp>

#include <cstdio>

static int failed(const dipc::Error& error) {
  std::fprintf(stderr, "%s: %s\n", dipc::to_string(error.status()), error.text().data());
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s URI TICKET\n", argv[0]);
    return 2;
  }
  auto client = dipc::Client::make();
  if (!client) return failed(client.error());
  auto stream = client->get(argv[1], argv[2]);
  if (!stream) return failed(stream.error());
  std::size_t rows = 0;
  for (;;) {
    auto batch = stream->next();
    if (!batch) return failed(batch.error());
    if (!*batch) break;  // the end
    rows += static_cast<std::size_t>((*batch)->array.length);
  }
  std::printf("%zu rows\n", rows);
}
