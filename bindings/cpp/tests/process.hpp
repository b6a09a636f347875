// A server in a process of its own.
#ifndef DIPC_CPP_TESTS_PROCESS_HPP
#define DIPC_CPP_TESTS_PROCESS_HPP

#include <sys/wait.h>

#include <array>
#include <string_view>

#include "support.hpp"

namespace support {

using Handler = dipc::Result<dipc::Stream> (*)(dipc::RequestRef);

/// A server with a handler, over shm and tcp, forked before this process uses the library. It leaves
/// no array behind, or exits with 1.
class Process {
 public:
  explicit Process(Handler handler, const dipc::ServerOptions& options = {}) {
    std::array<int, 2> input = {};
    std::array<int, 2> output = {};
    if (pipe(input.data()) != 0 || pipe(output.data()) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) {
      close(input[1]);
      close(output[0]);
      _exit(serve(handler, options, input[0], output[1]));
    }
    close(input[0]);
    close(output[1]);
    control_ = input[1];
    std::string text;
    char byte = 0;
    while (read(output[0], &byte, 1) > 0) text += byte;
    close(output[0]);
    const auto end = text.find('\n');
    shm_ = text.substr(0, end);
    tcp_ = text.substr(end + 1, text.size() - end - 2);
  }

  /// Ends it, unless it has ended, and gives what waitpid() gives.
  int end() {
    if (control_ < 0) return 0;
    int status = 0;
    close(std::exchange(control_, -1));
    waitpid(pid_, &status, 0);
    return status;
  }

  /// Where it listens, over "shm" or "tcp".
  [[nodiscard]] std::string uri(std::string_view transport) const {
    return transport == "tcp" ? tcp_ : shm_;
  }

 private:
  /// Serves until `control` is closed.
  static int serve(Handler handler, const dipc::ServerOptions& options, int control, int out) {
    auto server = dipc::Server::make(options).value();
    server.set_handler(handler).value();
    for (const std::string& at : {address(), std::string("tcp://127.0.0.1:0")}) {
      const auto uri = server.listen(at).value() + "\n";
      if (write(out, uri.data(), uri.size()) < 0) return 1;
    }
    close(out);
    char byte = 0;
    while (read(control, &byte, 1) < 0) {
    }
    const bool is_idle = server.stat(dipc::ServerStat::streams_active).value() == 0;
    server.stop().value();
    table_wait_live(0);
    return is_idle ? 0 : 1;
  }

  pid_t pid_ = -1;
  int control_ = -1;
  std::string shm_, tcp_;
};

}  // namespace support

#endif
