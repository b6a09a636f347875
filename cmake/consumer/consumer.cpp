// The same from C++, with the handle and the error owned.
#include <dipc.h>

#include <cstdio>
#include <memory>
#include <string>

int main() {
  dipc_error *raw_error = nullptr;
  dipc_cancel *raw_cancel = nullptr;
  if (dipc_cancel_new(&raw_cancel, &raw_error) != DIPC_OK) return 1;
  const std::unique_ptr<dipc_cancel, decltype(&dipc_cancel_free)> cancel(raw_cancel,
                                                                        dipc_cancel_free);
  if (dipc_cancel_trigger(cancel.get(), nullptr) != DIPC_OK) return 1;
  if (!dipc_cancel_is_triggered(cancel.get())) return 1;

  if (dipc_cancel_new(nullptr, &raw_error) != DIPC_ERR_NULL_ARGUMENT) return 1;
  const std::unique_ptr<dipc_error, decltype(&dipc_error_free)> error(raw_error, dipc_error_free);
  if (std::string(dipc_error_text(error.get())) != "out is NULL") return 1;
  std::printf("libdipc %s\n", dipc_version_string());
  return 0;
}
