// dipc.h first: it defines the structs, and Arrow's header finds them there. Both are the same.
#include <dipc/dipc.hpp>

#ifdef ARROW_STATISTICS_KEY_MAX_VALUE_EXACT
#error "dipc.h is to come first here"
#endif

#include <arrow/c/abi.h>

#include <dipc/arrow.hpp>

dipc::Stream made_before();

int main() {
  auto reader = dipc::to_reader(made_before()).value();
  const auto batch = reader->Next();
  return batch.ok() && (*batch)->num_rows() == 3 ? 0 : 1;
}
