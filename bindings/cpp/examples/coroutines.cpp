// Streams in an event loop, with coroutines of C++20: one thread serves all, and one reads all.
#include <dipc/coroutine.hpp>
#include <dipc/dipc.hpp>

#include <poll.h>

#include <coroutine>
#include <cstddef>
#include <cstdio>
#include <string>
#include <thread>
#include <utility>
#include <vector>

constexpr int streams = 100;

// A coroutine that nobody waits for. Loop::run() throws its exceptions.
struct Task {
  struct promise_type {
    Task get_return_object() noexcept { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() { throw; }
  };
};

// Resumes coroutines when the event that they wait for has come. Any event loop can do this.
class Loop {
 public:
  void wait_readable(int fd, std::coroutine_handle<> coroutine) {
    fds_.push_back({fd, POLLIN, 0});
    coroutines_.push_back(coroutine);
  }

  // Runs until no coroutine waits.
  void run() {
    while (!fds_.empty()) {
      poll(fds_.data(), fds_.size(), -1);
      const auto fds = std::exchange(fds_, {});
      const auto coroutines = std::exchange(coroutines_, {});
      for (std::size_t i = 0; i < fds.size(); i++) {
        if (fds[i].revents != 0) {
          coroutines[i].resume();
        } else {
          wait_readable(fds[i].fd, coroutines[i]);
        }
      }
    }
  }

 private:
  std::vector<pollfd> fds_;
  std::vector<std::coroutine_handle<>> coroutines_;
};

static dipc::Columns numbers(double value) {
  dipc::Columns columns;
  columns.add("number", std::vector<double>(10, value));
  return columns;
}

static Task answer(Loop& loop, dipc::Request request) {
  request.start(numbers(0).schema()).value();
  for (int i = 0; i < 10; i++) {
    auto columns = numbers(i);
    auto batch = std::move(columns).batch().value();
    (co_await dipc::async::push(loop, request, std::move(batch))).value();
  }
  (co_await dipc::async::finish(loop, request)).value();
}

static Task serve(Loop& loop, const dipc::Server& server) {
  for (int i = 0; i < streams; i++) {
    answer(loop, (co_await dipc::async::next_request(loop, server)).value());
    (void)server.drain_releases();  // batches that clients have given back
  }
}

static Task read(Loop& loop, const dipc::Client& client, const std::string& uri, double& sum) {
  auto stream = (co_await dipc::async::get(loop, client, uri, "numbers")).value();
  const auto schema = stream.schema().value();
  for (;;) {
    const auto batch = (co_await dipc::async::next(loop, stream)).value();
    if (!batch) co_return;  // the end
    const auto column = dipc::ColumnView<double>::of(schema, batch, "number").value();
    for (const double number : column.values()) sum += number;
  }
}

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s URI\n", argv[0]);
    return 2;
  }
  try {
    dipc::ServerOptions options;
    options.max_streams = 2 * streams;  // clients over tcp have all but an eighth
    auto server = dipc::Server::make(options).value();
    server.serve_pull("numbers").value();
    const std::string uri = server.listen(argv[1]).value();
    std::thread serving([&] {
      Loop loop;
      serve(loop, server);
      loop.run();
    });

    auto client = dipc::Client::make().value();
    Loop loop;
    double sum = 0;
    for (int i = 0; i < streams; i++) read(loop, client, uri, sum);
    loop.run();
    serving.join();
    std::printf("%d streams, sum %.1f\n", streams, sum);
  } catch (const dipc::Exception& failure) {
    std::fprintf(stderr, "%s: %s\n", dipc::to_string(failure.status()), failure.what());
    return 1;
  }
}
