// A unit that uses every header: included by unit_with.cpp and, without exceptions, unit_without.cpp.
#include <dipc/dipc.hpp>

#include <cstdio>

/// Serves and fetches once. Says whether all went well.
template <class Unit>
bool serve_and_fetch(Unit /*which one*/, const char* address) {
  auto server = dipc::Server::make();
  auto client = dipc::Client::make();
  if (!server || !client) return false;
  const auto served = server->serve("table", [](dipc::RequestRef) {
    dipc::Columns columns;
    columns.add("n", std::vector<int>{1, 2, 3});
    auto schema = columns.schema();
    return dipc::generate(std::move(schema), [batch = std::move(columns).batch()]() mutable {
      return batch.ok() ? std::move(*batch) : dipc::DeviceArray();
    });
  });
  const auto uri = server->listen(address);
  if (!served || !uri) return false;
  auto stream = client->get(*uri, "table");
  if (!stream) return false;
  const auto batch = stream->next();
  const auto missing = client->get(*uri, "nothing");
  return batch.ok() && (*batch)->array.length == 3 &&
         missing.status() == dipc::Status::not_found;
}
