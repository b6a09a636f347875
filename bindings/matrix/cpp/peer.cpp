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
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
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

/// All of an Arrow stream file.
struct File {
  std::shared_ptr<arrow::Schema> schema;
  arrow::RecordBatchVector batches;
};

File read_file(const char* path) {
  auto reader = take(arrow::ipc::RecordBatchStreamReader::Open(
      take(arrow::io::ReadableFile::Open(path))));
  return {reader->schema(), take(reader->ToRecordBatches())};
}

struct Counts {
  std::int64_t rows = 0;
  std::uint64_t batches = 0;
};

void print(const Counts& counts) {
  std::printf("rows=%lld batches=%llu\n", static_cast<long long>(counts.rows),
              static_cast<unsigned long long>(counts.batches));
}

/// Writes a stream to a file, and counts what it had.
Counts write_file(dipc::Stream stream, const char* path) {
  auto reader = dipc::to_reader(std::move(stream)).value();
  auto file = take(arrow::io::FileOutputStream::Open(path));
  auto writer = take(arrow::ipc::MakeStreamWriter(file, reader->schema()));
  Counts counts;
  for (;;) {
    const auto next = take(reader->ReadNext());
    if (next.batch == nullptr) break;
    check(writer->WriteRecordBatch(*next.batch, next.custom_metadata));
    counts.rows += next.batch->num_rows();
    counts.batches++;
  }
  check(writer->Close());
  check(file->Close());
  return counts;
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

/// Takes any table and serves it from then on, and gives that of an exchange back.
dipc::Result<dipc::Stream> handle(const dipc::Server& server, const dipc::RequestRef& request) {
  const std::string ticket = request.ticket().value();
  switch (request.verb()) {
    case dipc::Verb::put:
      server.replace(ticket, request.source().value()).value();
      return dipc::Stream();
    case dipc::Verb::exchange:
      return request.source();
    default:
      return dipc::Error(dipc::Status::not_found, "there is no ticket " + ticket);
  }
}

int serve(std::string_view uri, const char* path, bool block) {
  // Blocked before the library starts threads, so that none of them takes the signal.
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  const int signals = signalfd(-1, &ends, SFD_CLOEXEC);

  const File file = read_file(path);
  dipc::ServerOptions options;
  options.trusted_network = true;  // a test's network
  auto server = dipc::Server::make(options).value();
  server.serve("table", [=](dipc::RequestRef) {
    return arrow::RecordBatchReader::Make(file.batches, file.schema);
  }).value();
  if (!file.batches.empty()) serve_first(server, file.schema, file.batches[0]);
  server.set_handler([&server](dipc::RequestRef request) { return handle(server, request); })
      .value();
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
  print(write_file(client.get(uri, ticket).value(), out));
  return 0;
}

void put(const dipc::Client& client, std::string_view uri, std::string_view ticket,
         const char* path) {
  const File file = read_file(path);
  Counts counts;
  for (const auto& batch : file.batches) counts.rows += batch->num_rows();
  auto reader = arrow::RecordBatchReader::Make(file.batches, file.schema);
  auto put = client.put(uri, ticket, std::move(reader)).value();
  counts.batches = put.finish().value();
  print(counts);
}

void exchange(const dipc::Client& client, std::string_view uri, std::string_view ticket,
              const char* path, const char* out) {
  const File file = read_file(path);
  auto both = client.exchange(uri, ticket, dipc::to_schema(*file.schema).value()).value();
  auto sent = std::async(std::launch::async, [&] {
    // Its end fails the table, so that nobody waits for the answer to a batch that was not sent.
    dipc::Put put = std::move(both.put);
    for (const auto& batch : file.batches) put.push(dipc::to_array(*batch).value()).value();
    return put.finish().value();
  });
  const Counts counts = write_file(std::move(both.answers), out);
  sent.get();
  print(counts);
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

/// Says what went wrong, and gives the exit status.
template <class F>
int attempt(F&& run) {
  try {
    return run();
  } catch (const dipc::Exception& failure) {
    std::printf("error %s %s\n", dipc::to_string(failure.status()), failure.what());
  } catch (const std::exception& failure) {
    std::printf("error DIPC_UNKNOWN %s\n", failure.what());
  }
  return 3;
}

/// Sends one file after another: `send` takes the first of the words of each, which are `count`.
template <class F>
int send_all(const std::vector<std::string_view>& words, std::size_t count, F&& send) {
  const auto client = dipc::Client::make().value();
  int result = 0;
  for (std::size_t at = 3; at < words.size(); at += count) {
    const int one = attempt([&] {
      send(client, &words[at]);
      return 0;
    });
    if (one != 0) result = one;
  }
  return result;
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
  if (verb == "put" && words.size() > 3 && (words.size() - 3) % 2 == 0) {
    return send_all(words, 2, [&](const dipc::Client& client, const std::string_view* one) {
      put(client, words[2], one[0], one[1].data());
    });
  }
  if (verb == "exchange" && words.size() > 3 && (words.size() - 3) % 3 == 0) {
    return send_all(words, 3, [&](const dipc::Client& client, const std::string_view* one) {
      exchange(client, words[2], one[0], one[1].data(), one[2].data());
    });
  }
  std::fprintf(stderr,
               "usage: peer-cpp serve URI FILE [--block] | get URI TICKET OUT | "
               "cancel URI TICKET N | put URI TICKET FILE ... | "
               "exchange URI TICKET FILE OUT ...\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  return attempt([&] { return run({argv, argv + argc}); });
}
