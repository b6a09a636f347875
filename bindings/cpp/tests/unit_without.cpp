#include "unit.hpp"

#if DIPC_CPP_EXCEPTIONS || defined(__GXX_RTTI)
#error "this unit is to be compiled without exceptions and type information"
#endif

bool without_exceptions() {
  return serve_and_fetch([] {}, "shm:@dipc-cpp-unit-without");
}
