// A libnvidia-ml.so.1 with which UCX's CUDA modules load: every function is unsupported.
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
