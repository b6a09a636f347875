// A server that answers queries, and a client that asks before it fetches.
#include <dipc/dipc.hpp>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

// A table of the numbers below `count`.
static dipc::Columns numbers(std::size_t count) {
  std::vector<double> values(count);
  std::iota(values.begin(), values.end(), 0);
  dipc::Columns columns;
  columns.add("number", std::move(values));
  return columns;
}

// Answers every ticket that is a number. An exception is the client's error.
static dipc::Result<dipc::Stream> answer(dipc::RequestRef request) {
  const auto count = std::stoul(request.ticket().value());
  switch (request.verb()) {
    case dipc::Verb::get: {
      const auto user = request.headers().value().get("user");
      request.add_headers({{"greeting", "hello " + user.value_or("stranger")}}).value();
      auto table = numbers(count);
      auto schema = table.schema();
      auto batch = std::move(table).batch().value();
      // The second call finds that the batch was moved, and returns nothing, which ends the stream.
      return dipc::generate(std::move(schema),
                            [batch = std::move(batch)]() mutable { return std::move(batch); });
    }
    case dipc::Verb::describe: {
      dipc::Description description;
      description.schema = numbers(0).schema();
      description.rows = count;
      return dipc::to_stream(description);
    }
    default: return dipc::Error(dipc::Status::unsupported, "numbers are not listed");
  }
}

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s URI\n", argv[0]);
    return 2;
  }
  try {
    auto server = dipc::Server::make().value();
    server.set_handler(answer).value();
    const std::string uri = server.listen(argv[1]).value();

    auto client = dipc::Client::make().value();
    const auto described = client.describe(uri, "1000").value();
    std::printf("%zu rows\n", static_cast<std::size_t>(described.rows.value_or(0)));

    dipc::GetOptions options;
    options.headers.add("user", "ada");
    options.deadline = std::chrono::seconds(10);
    auto stream = client.get(uri, "1000", options).value();
    std::printf("%s\n", stream.headers().value().get("greeting").value_or("").c_str());

    // Takes the place of the ticket's table, if there is one.
    server.replace("latest", std::move(stream)).value();
    for (const dipc::Endpoint& endpoint : client.list(uri, "la").value()) {
      std::printf("%s: %zu rows\n", endpoint.descriptor.c_str(),
                  static_cast<std::size_t>(endpoint.rows.value_or(0)));
    }
  } catch (const dipc::Exception& failure) {
    std::fprintf(stderr, "%s: %s\n", dipc::to_string(failure.status()), failure.what());
    return 1;
  }
}
