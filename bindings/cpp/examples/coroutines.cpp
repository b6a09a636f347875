// Streams in an event loop, with coroutines of C++20: one thread serves all, and one reads all.
#include <dipc/dipc.hpp>

#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <coroutine>
#include <cstdint>
#include <cstdio>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

constexpr int streams = 100;

// A coroutine that nobody waits for. What it throws comes out of Loop::run().
struct Task {
  struct promise_type {
    Task get_return_object() noexcept { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() { throw; }
  };
};

// Resumes coroutines when what they wait for is there.
class Loop {
 public:
  class Waiter {
   public:
    virtual bool is_ready() = 0;

   protected:
    ~Waiter() = default;

   private:
    friend class Loop;
    int fd_ = -1;
    std::coroutine_handle<> coroutine_;
  };

  Loop() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    if (epoll_ < 0) throw std::system_error(errno, std::generic_category(), "epoll_create1");
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  ~Loop() { close(epoll_); }

  void add(Waiter& waiter, int fd, std::coroutine_handle<> coroutine) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = &waiter;
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) {
      throw std::system_error(errno, std::generic_category(), "epoll_ctl");
    }
    waiter.fd_ = fd;
    waiter.coroutine_ = coroutine;
    waiting_++;
  }

  // Runs until no coroutine waits.
  void run() {
    while (waiting_ > 0) {
      std::array<epoll_event, 16> events;
      const int ready = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), -1);
      for (int i = 0; i < ready; i++) {
        auto& waiter = *static_cast<Waiter*>(events[static_cast<std::size_t>(i)].data.ptr);
        if (!waiter.is_ready()) continue;
        epoll_ctl(epoll_, EPOLL_CTL_DEL, waiter.fd_, nullptr);
        waiting_--;
        waiter.coroutine_.resume();
      }
    }
  }

 private:
  int epoll_;
  int waiting_ = 0;
};

// Waits until `attempt` gives something: co_await gives it, or throws its error.
template <class F>
class Until : public Loop::Waiter {
 public:
  Until(Loop& loop, int fd, F attempt) : loop_(loop), fd_(fd), attempt_(std::move(attempt)) {}

  bool is_ready() override {
    result_ = attempt_();
    return !result_.ok() || static_cast<bool>(*result_);
  }

  bool await_ready() { return is_ready(); }
  void await_suspend(std::coroutine_handle<> coroutine) { loop_.add(*this, fd_, coroutine); }
  auto await_resume() { return std::move(result_).value(); }

 private:
  Loop& loop_;
  int fd_;
  F attempt_;
  decltype(std::declval<F>()()) result_ = dipc::Error(dipc::Status::busy, "not tried yet");
};

template <class T>
static auto answer_to(Loop& loop, const dipc::Pending<T>& pending) {
  return Until(loop, pending.fd().value(), [&] { return pending.try_take(); });
}

static auto next(Loop& loop, dipc::Stream& stream) {
  return Until(loop, stream.fd().value(), [&] { return stream.try_next(); });
}

static auto next_request(Loop& loop, const dipc::Server& server) {
  return Until(loop, server.request_fd().value(),
               [&] { return server.next_request(std::chrono::seconds(0)); });
}

static auto push(Loop& loop, const dipc::Request& request, dipc::DeviceArray& batch) {
  return Until(loop, request.fd().value(), [&] { return request.try_push(std::move(batch)); });
}

static auto finish(Loop& loop, const dipc::Request& request) {
  return Until(loop, request.fd().value(), [&] { return request.try_finish(); });
}

static dipc::Columns numbers(double value) {
  dipc::Columns columns;
  columns.add("number", std::vector<double>(10, value));
  return columns;
}

static Task answer(Loop& loop, dipc::Request request) {
  request.start(numbers(0).schema()).value();
  for (int i = 0; i < 10; i++) {
    auto batch = numbers(i).batch().value();
    co_await push(loop, request, batch);
  }
  co_await finish(loop, request);
}

static Task serve(Loop& loop, const dipc::Server& server) {
  for (int i = 0; i < streams; i++) {
    auto request = co_await next_request(loop, server);
    answer(loop, *std::move(request));
    (void)server.drain_releases();  // batches that clients have given back
  }
}

static Task read(Loop& loop, const dipc::Client& client, const std::string& uri, double& sum) {
  const auto pending = client.start_get(uri, "numbers").value();
  auto stream = *co_await answer_to(loop, pending);
  const auto schema = stream.schema().value();
  for (;;) {
    auto batch = co_await next(loop, stream);
    if (!*batch) co_return;  // the end
    const auto column = dipc::ColumnView<double>::of(schema, *batch, "number").value();
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
    options.max_streams = streams;
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
