// Serves a table of std::vectors, which lie in an arena: clients on this machine map them.
#include <dipc/dipc.hpp>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s URI\n", argv[0]);
    return 2;
  }
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigprocmask(SIG_BLOCK, &signals, nullptr);  // before the library starts threads
  try {
    auto arena = dipc::Arena::make().value();
    std::vector<double, dipc::ArenaAllocator<double>> prices(1000, 1.5,
                                                             dipc::ArenaAllocator<double>(arena));
    const std::vector<std::string> names(1000, "a name");

    dipc::Columns columns;
    columns.add("price", std::move(prices)).add("name", names);
    auto schema = columns.schema();
    std::vector<dipc::DeviceArray> batches;
    batches.push_back(std::move(columns).batch().value());

    auto server = dipc::Server::make().value();
    server.publish("prices", std::move(schema), std::move(batches)).value();
    std::printf("%s\n", server.listen(argv[1]).value().c_str());
    std::fflush(stdout);

    int signal = 0;
    sigwait(&signals, &signal);
    server.stop(std::chrono::seconds(2)).value();  // streams under way may end
  } catch (const dipc::Exception& failure) {
    std::fprintf(stderr, "%s: %s\n", dipc::to_string(failure.status()), failure.what());
    return 1;
  }
}
