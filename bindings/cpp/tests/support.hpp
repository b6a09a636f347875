// What the tests begin with: servers at addresses of their own, tables of plain C structs.
#ifndef DIPC_CPP_TESTS_SUPPORT_HPP
#define DIPC_CPP_TESTS_SUPPORT_HPP

#include <dipc/dipc.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>

// The tables of the C tests. Their macros have names that GoogleTest and Arrow have, too.
extern "C" {
#include "table.h"
}
#undef FAIL
#undef CHECK
#undef OK
#undef STATUS
#include <gtest/gtest.h>

#include <dlfcn.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

namespace support {

/// An address that no other test has.
inline std::string address() {
  static int count = 0;
  return "shm:@dipc-cpp-" + std::to_string(getpid()) + "-" + std::to_string(count++);
}

/// A server that listens, and a client of it.
struct Pair {
  explicit Pair(const dipc::ServerOptions& options = {}, const std::string& at = address())
      : server(dipc::Server::make(options).value()),
        client(dipc::Client::make().value()),
        uri(server.listen(at).value()) {}

  dipc::Result<dipc::Stream> get(std::string_view ticket) const { return client.get(uri, ticket); }

  dipc::Server server;
  dipc::Client client;
  std::string uri;
};

/// Whether this machine has a CUDA driver.
inline bool has_driver() {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  return driver != nullptr && dlclose(driver) == 0;
}

inline dipc::Schema plain_schema() {
  dipc::Schema schema;
  table_schema(schema.get());
  return schema;
}

inline dipc::DeviceArray plain_batch(std::int64_t first, std::int64_t rows) {
  dipc::DeviceArray batch;
  table_batch(batch.get(), first, rows, nullptr);
  return batch;
}

inline std::vector<dipc::DeviceArray> plain_batches(std::int64_t count, std::int64_t rows) {
  std::vector<dipc::DeviceArray> batches;
  for (std::int64_t i = 0; i < count; i++) batches.push_back(plain_batch(i * rows, rows));
  return batches;
}

/// A stream of another library: plain structs and callbacks. Batch `fail_at` fails; -1: no batch
/// fails.
inline dipc::Stream plain_stream(std::int64_t batches, std::int64_t rows,
                                 std::int64_t fail_at = -1) {
  dipc::Stream stream;
  table_stream(stream.get(), batches, rows, fail_at, nullptr);
  return stream;
}

/// Reads a stream to its end, and says how many rows there were.
inline dipc::Result<std::int64_t> count_rows(dipc::Stream& stream) {
  std::int64_t rows = 0;
  for (;;) {
    auto batch = stream.next();
    if (!batch) return batch.error();
    if (!*batch) return rows;
    table_check(&(*batch)->array, rows, (*batch)->array.length);
    rows += (*batch)->array.length;
  }
}

/// A test that checks that all structs of the C tables were released.
class Tables : public ::testing::Test {
 protected:
  void TearDown() override { table_wait_live(0); }
};

}  // namespace support

#endif
