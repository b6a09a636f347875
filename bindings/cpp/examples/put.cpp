// A server that takes tables, and a client that sends one.
#include <dipc/dipc.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

using Prices = std::vector<double, dipc::ArenaAllocator<double>>;

// Takes a table of prices. An exception or an Error refuses the table or fails it.
static dipc::Result<dipc::Stream> take(dipc::RequestRef request) {
  if (request.verb() != dipc::Verb::put) {
    return dipc::Error(dipc::Status::unsupported, "this server takes tables only");
  }
  const std::string name = request.ticket().value();
  const auto schema = request.source_schema().value();
  auto source = request.source().value();  // accepted: from now on the client sends
  double sum = 0;
  std::uint64_t batches = 0;
  for (const dipc::DeviceArray& batch : source) {
    const auto prices = dipc::ColumnView<double>::of(schema, batch, "price").value();
    for (const double price : prices.values()) sum += price;
    request.result(++batches, name + " sums up to " + std::to_string(sum)).value();
  }
  return dipc::Stream();  // the whole table is taken
}

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s URI\n", argv[0]);
    return 2;
  }
  try {
    auto server = dipc::Server::make().value();
    server.set_handler(take).value();
    const std::string uri = server.listen(argv[1]).value();

    auto arena = dipc::Arena::make().value();
    auto client = dipc::Client::make().value();
    const auto prices = [&arena](double price) {
      dipc::Columns columns;
      columns.add("price", Prices(1000, price, dipc::ArenaAllocator<double>(arena)));
      return columns;
    };
    auto put = client.put_open(uri, "today", prices(0).schema()).value();
    for (const double price : {1.5, 2.5}) {
      auto columns = prices(price);
      put.push(std::move(columns).batch().value()).value();
    }
    const auto taken = put.finish().value();
    for (;;) {
      const auto result = put.next_result().value();
      if (!result) break;  // there are no more
      std::printf("%zu: %s\n", static_cast<std::size_t>(result.batches), result.bytes.c_str());
    }
    std::printf("%zu batches, %zu bytes copied\n", static_cast<std::size_t>(taken),
                static_cast<std::size_t>(put.stat(dipc::PutStat::bytes_copied).value()));
  } catch (const dipc::Exception& failure) {
    std::fprintf(stderr, "%s: %s\n", dipc::to_string(failure.status()), failure.what());
    return 1;
  }
}
