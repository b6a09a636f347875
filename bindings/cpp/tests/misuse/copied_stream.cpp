// flags: -Wall
// says: deleted
#include <dipc/dipc.hpp>

void give(dipc::Stream stream);

void twice(dipc::Stream stream) {
  give(stream);  // misuse
  give(std::move(stream));
}
