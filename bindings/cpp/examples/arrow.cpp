// Serves an Arrow table and fetches it again.
#include <dipc/arrow.hpp>
#include <dipc/dipc.hpp>

#include <arrow/api.h>

#include <iostream>

// A table whose buffers come from `pool`.
static arrow::Result<std::shared_ptr<arrow::Table>> make_table(arrow::MemoryPool* pool) {
  arrow::Int64Builder builder(pool);
  for (int number = 0; number < 1000; number++) ARROW_RETURN_NOT_OK(builder.Append(number));
  ARROW_ASSIGN_OR_RAISE(auto numbers, builder.Finish());
  return arrow::Table::Make(arrow::schema({arrow::field("number", arrow::int64())}), {numbers});
}

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: " << argv[0] << " URI\n";
    return 2;
  }
  try {
    auto pool = dipc::ArenaPool::make(dipc::Arena::make().value());
    auto server = dipc::Server::make().value();
    // The table is published once, and can be fetched any number of times without a copy, because
    // it lies in an arena.
    server.publish("numbers", make_table(pool.get())).value();
    // The table is made anew for each client. An error in here is the client's error.
    server.serve("made", [](dipc::RequestRef) { return make_table(arrow::default_memory_pool()); })
        .value();
    const std::string uri = server.listen(argv[1]).value();

    auto client = dipc::Client::make().value();
    for (const char* ticket : {"numbers", "made"}) {
      auto table = dipc::to_table(client.get(uri, ticket).value()).value();
      std::cout << ticket << ": " << table->num_rows() << " rows\n";
    }
  } catch (const dipc::Exception& failure) {
    std::cerr << dipc::to_string(failure.status()) << ": " << failure.what() << "\n";
    return 1;
  }
}
