/* A library that says it is of a later major version. */
#include <stdint.h>

uint32_t dipc_version(void);
const char *dipc_version_string(void);

uint32_t dipc_version(void) { return 7000000; }
const char *dipc_version_string(void) { return "7.0.0"; }
