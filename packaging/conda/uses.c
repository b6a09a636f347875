/* A program against the package: the library is of the header's version. */
#include <dipc.h>
#include <stdio.h>

int main(void) {
  printf("libdipc %s\n", dipc_version_string());
  return dipc_version() / 1000 != DIPC_VERSION_MAJOR * 1000 + DIPC_VERSION_MINOR;
}
