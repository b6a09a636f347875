// libnvidia-ml.so.1, as far as UCX's CUDA modules need it to load: it says that it can do nothing.
#define EXPORT __attribute__((visibility("default")))

enum { NOT_SUPPORTED = 3 };

EXPORT const char *nvmlErrorString(int code) {
  (void)code;
  return "this is a fake of NVML";
}

EXPORT int nvmlInit_v2(void) { return NOT_SUPPORTED; }
EXPORT int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  return NOT_SUPPORTED;
}
EXPORT int nvmlShutdown(void) { return 0; }
