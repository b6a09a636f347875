// A client that sends a table, and a server that sends back the rows of at least 10 meanwhile.
#include <dipc/dipc.hpp>

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

static dipc::Columns numbers(std::vector<std::int64_t> values) {
  dipc::Columns columns;
  columns.add("n", std::move(values));
  return columns;
}

static std::vector<std::int64_t> read(const dipc::Schema& schema, const dipc::DeviceArray& batch) {
  const auto column = dipc::ColumnView<std::int64_t>::of(schema, batch, "n").value();
  return {column.values().begin(), column.values().end()};
}

// Gives the answer: each of its batches is made from one of the client's batches when the client
// has room.
static dipc::Result<dipc::Stream> large(dipc::RequestRef request) {
  if (request.verb() != dipc::Verb::exchange) {
    return dipc::Error(dipc::Status::unsupported, "this server exchanges tables only");
  }
  auto schema = request.source_schema().value();
  auto source = request.source().value();  // accepted: from now on the client sends
  auto next = [schema = std::move(schema),
               source = std::move(source)]() mutable -> dipc::Result<dipc::DeviceArray> {
    auto batch = source.next();
    if (!batch.ok() || !*batch) return batch;
    std::vector<std::int64_t> kept;
    for (const std::int64_t n : read(schema, *batch)) {
      if (n >= 10) kept.push_back(n);
    }
    return numbers(std::move(kept)).batch();
  };
  return dipc::generate(numbers({}).schema(), std::move(next));
}

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s URI\n", argv[0]);
    return 2;
  }
  try {
    auto server = dipc::Server::make().value();
    server.set_handler(large).value();
    const std::string uri = server.listen(argv[1]).value();

    auto client = dipc::Client::make().value();
    auto exchange = client.exchange(uri, "large", numbers({}).schema()).value();
    std::int64_t rows = 0;
    std::int64_t sum = 0;
    for (auto& values : std::vector<std::vector<std::int64_t>>{{1, 10, 100}, {2, 3}, {20, 30}}) {
      exchange.put.push(numbers(std::move(values)).batch().value()).value();
      // The answer to each batch is one batch. Without such a rule another thread reads.
      const auto schema = exchange.answers.schema().value();
      const auto answer = exchange.answers.next().value();
      for (const std::int64_t n : read(schema, answer)) {
        rows++;
        sum += n;
      }
    }
    const auto sent = exchange.put.finish().value();
    std::printf("%d batches sent, %d rows back, sum %d\n", static_cast<int>(sent),
                static_cast<int>(rows), static_cast<int>(sum));
  } catch (const dipc::Exception& failure) {
    std::fprintf(stderr, "%s: %s\n", dipc::to_string(failure.status()), failure.what());
    return 1;
  }
}
