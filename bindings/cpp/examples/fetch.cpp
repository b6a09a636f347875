// Fetches the table of serve.cpp, and adds up a column of it.
#include <dipc/dipc.hpp>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s URI TICKET\n", argv[0]);
    return 2;
  }
  try {
    auto client = dipc::Client::make().value();
    auto stream = client.get(argv[1], argv[2]).value();
    const auto schema = stream.schema().value();
    double sum = 0;
    std::size_t rows = 0;
    for (const dipc::DeviceArray& batch : stream) {
      const auto prices = dipc::ColumnView<double>::of(schema, batch, "price").value();
      for (const double price : prices.values()) sum += price;
      rows += prices.size();
    }
    std::printf("%zu rows, sum %.1f\n", rows, sum);
  } catch (const dipc::Exception& failure) {
    std::fprintf(stderr, "%s: %s\n", dipc::to_string(failure.status()), failure.what());
    return 1;
  }
}
