// Features of newer C++ standard libraries: std::format and std::expected. A program of its own,
// without GoogleTest, so that every compiler with its own library of C++ builds it. It prints which
// of them are missing.
#include <dipc/dipc.hpp>

#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

static int failures = 0;

static void check(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "wrong: %s\n", what);
  failures++;
}

// Promise: statuses and errors go into streams by the name of the status and the text.
static void streams_take_errors() {
  std::ostringstream out;
  const dipc::Error error(dipc::Status::busy, "try again");
  out << dipc::Status::not_found << " and " << error;
  check(out.str() == "DIPC_ERR_NOT_FOUND and DIPC_ERR_BUSY: try again", "operator<<");
  check(dipc::to_string(error) == "DIPC_ERR_BUSY: try again", "to_string");
}

#if defined(__cpp_lib_format)
// Promise: std::format takes both, with the format options of a text.
static void errors_are_formatted() {
  const dipc::Error error(dipc::Status::busy, "try again");
  check(std::format("{}", dipc::Status::timeout) == "DIPC_ERR_TIMEOUT", "a status");
  check(std::format("[{:>18}]", dipc::Status::timeout) == "[  DIPC_ERR_TIMEOUT]", "its width");
  check(std::format("{}!", error) == "DIPC_ERR_BUSY: try again!", "an error");
  check(std::format("{:.8}", error) == "DIPC_ERR", "its precision");
  check(std::format("{}", static_cast<dipc::Status>(-999)) == "DIPC_UNKNOWN", "a number of no name");
  const auto missing = dipc::Client::make().value().get("shm:@dipc-nobody-formats", "x");
  check(std::format("{}", missing.error()).find("DIPC_ERR_UNREACHABLE: ") == 0, "the library's own");
}
#else
static void errors_are_formatted() { std::puts("skipped: this compiler has no std::format"); }
#endif

#if defined(__cpp_lib_expected)
template <class T>
using Expected = std::expected<T, dipc::Error>;

static Expected<int> half(int number) {
  const dipc::Result<int> result =
      number % 2 == 0 ? dipc::Result<int>(number / 2)
                      : dipc::Result<int>(dipc::Error(dipc::Status::invalid_data, "odd"));
  return result;
}

// Promise: values and errors cross both ways, and nothing is copied that can be moved.
static void results_are_expected() {
  check(half(4) == 2, "a value becomes an expected");
  check(half(3).error().text() == "odd", "so does an error");
  check(dipc::Result<int>(half(4)).value() == 2, "an expected becomes a value");
  check(dipc::Result<int>(half(3)).status() == dipc::Status::invalid_data, "so does its error");

  dipc::Result<std::unique_ptr<int>> moved = std::make_unique<int>(7);
  Expected<std::unique_ptr<int>> owner = std::move(moved);
  check(owner.has_value() && **owner == 7, "what is moved only");
  const dipc::Result<std::unique_ptr<int>> back = std::move(owner);
  check(**back == 7, "and back");

  const dipc::Result<void> done;
  const Expected<void> nothing = done;
  check(nothing.has_value() && dipc::Result<void>(nothing).ok(), "nothing at all");
  const dipc::Result<void> failed = dipc::Error(dipc::Status::io, "no");
  const Expected<void> failure = failed;
  check(!failure.has_value() && dipc::Result<void>(failure).status() == dipc::Status::io,
        "and its failure");
  const dipc::Result<int> refused = std::unexpected(dipc::Error(dipc::Status::permission, "no"));
  check(refused.status() == dipc::Status::permission, "std::unexpected");

  // For a boolean the value crosses, not whether there is a value.
  const dipc::Result<bool> no = false;
  const Expected<bool> crossed = no;
  check(crossed.has_value() && !*crossed, "a false one");
  const Expected<bool> none = dipc::Result<bool>(dipc::Error(dipc::Status::busy, "later"));
  check(!none.has_value() && !no.to_expected().value(), "none");

  const Expected<dipc::Stream> stream =
      dipc::Client::make().value().get("shm:@dipc-nobody-expects", "x");
  check(!stream && stream.error().status() == dipc::Status::unreachable, "the library's own");
}
#else
static void results_are_expected() { std::puts("skipped: this compiler has no std::expected"); }
#endif

int main() {
  streams_take_errors();
  errors_are_formatted();
  results_are_expected();
  return failures == 0 ? 0 : 1;
}
