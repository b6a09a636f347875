// The C++ program of the matrix. bindings/matrix/README.md has its command line.
#include <dipc/arrow.hpp>
#include <dipc/dipc.hpp>

#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <arrow/ipc/writer.h>

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

/// Arrow's value, or its failure as ours.
template <class T>
T take(arrow::Result<T> result) {
  if (!result.ok()) throw dipc::Exception(dipc::from_arrow(result.status()));
  return *std::move(result);
}

void check(const arrow::Status& status) {
  if (!status.ok()) throw dipc::Exception(dipc::from_arrow(status));
}

/// Waits for SIGTERM, SIGINT or, unless told not to, the end of stdin.
void wait_for_the_end(int signals, bool look_at_stdin) {
  pollfd waits[2] = {{signals, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
  for (;;) {
    if (poll(waits, look_at_stdin ? 2 : 1, -1) < 0) continue;  // interrupted
    if (waits[0].revents != 0) return;
    char bytes[256];
    if (waits[1].revents != 0 && read(STDIN_FILENO, bytes, sizeof bytes) <= 0) return;
  }
}

/// The tickets that are made of the first batch: one without end, one that fails.
void serve_first(const dipc::Server& server, const std::shared_ptr<arrow::Schema>& schema,
                 const std::shared_ptr<arrow::RecordBatch>& first) {
  server.serve("endless", [=](dipc::RequestRef) {
    return dipc::generate(dipc::to_schema(*schema).value(), [first] { return first; });
  }).value();
  server.serve("broken", [=](dipc::RequestRef) {
    return dipc::generate(dipc::to_schema(*schema).value(), [first, gone = false]() mutable {
      if (gone) throw std::runtime_error("the provider failed on purpose");
      gone = true;
      return first;
    });
  }).value();
}

int serve(std::string_view uri, const char* file, bool block) {
  // Blocked before the library starts threads, so that none of them takes the signal.
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  const int signals = signalfd(-1, &ends, SFD_CLOEXEC);

  auto reader = take(arrow::ipc::RecordBatchStreamReader::Open(
      take(arrow::io::ReadableFile::Open(file))));
  const std::shared_ptr<arrow::Schema> schema = reader->schema();
  const arrow::RecordBatchVector batches = take(reader->ToRecordBatches());

  dipc::ServerOptions options;
  options.trusted_network = true;  // a test's network
  auto server = dipc::Server::make(options).value();
  server.serve("table", [=](dipc::RequestRef) {
    return arrow::RecordBatchReader::Make(batches, schema);
  }).value();
  if (!batches.empty()) serve_first(server, schema, batches[0]);
  std::printf("%s\n", server.listen(uri).value().c_str());
  std::fflush(stdout);
  wait_for_the_end(signals, !block);
  close(signals);
  // Nobody fetches any more, but for those who were left behind on purpose.
  static_cast<void>(server.stop());
  return 0;
}

int get(std::string_view uri, std::string_view ticket, const char* out) {
  auto client = dipc::Client::make().value();
  auto reader = dipc::to_reader(client.get(uri, ticket).value()).value();
  auto file = take(arrow::io::FileOutputStream::Open(out));
  auto writer = take(arrow::ipc::MakeStreamWriter(file, reader->schema()));
  std::int64_t rows = 0;
  std::int64_t batches = 0;
  for (;;) {
    const auto next = take(reader->ReadNext());
    if (next.batch == nullptr) break;
    check(writer->WriteRecordBatch(*next.batch, next.custom_metadata));
    rows += next.batch->num_rows();
    batches++;
  }
  check(writer->Close());
  check(file->Close());
  std::printf("rows=%lld batches=%lld\n", static_cast<long long>(rows),
              static_cast<long long>(batches));
  return 0;
}

int cancel(std::string_view uri, std::string_view ticket, long count) {
  auto client = dipc::Client::make().value();
  auto token = dipc::Cancel::make().value();
  auto stream = client.get(uri, ticket, {}, &token).value();
  for (long taken = 0; taken < count; taken++) {
    if (!stream.next().value()) {
      throw std::runtime_error("the stream ended after " + std::to_string(taken) + " batches");
    }
  }
  token.trigger().value();
  // What had come before is still handed out; the next wait is what ends.
  auto after = stream.next();
  while (after.ok() && *after) after = stream.next();
  if (after.ok()) throw std::runtime_error("the stream ended well after it was cancelled");
  if (after.status() != dipc::Status::cancelled) throw dipc::Exception(after.error());
  std::printf("cancelled after %ld\n", count);
  return 0;
}

int run(const std::vector<std::string_view>& words) {
  const std::string_view verb = words.size() > 1 ? words[1] : "";
  if (verb == "serve" && (words.size() == 4 || (words.size() == 5 && words[4] == "--block"))) {
    return serve(words[2], words[3].data(), words.size() == 5);
  }
  if (verb == "get" && words.size() == 5) return get(words[2], words[3], words[4].data());
  if (verb == "cancel" && words.size() == 5) {
    return cancel(words[2], words[3], std::strtol(words[4].data(), nullptr, 10));
  }
  std::fprintf(stderr,
               "usage: peer-cpp serve URI FILE [--block] | get URI TICKET OUT | "
               "cancel URI TICKET N\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv, argv + argc});
  } catch (const dipc::Exception& failure) {
    std::printf("error %s %s\n", dipc::to_string(failure.status()), failure.what());
  } catch (const std::exception& failure) {
    std::printf("error DIPC_UNKNOWN %s\n", failure.what());
  }
  return 3;
}
