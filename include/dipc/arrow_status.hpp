// Errors of libdipc as statuses of Arrow C++, and back, without loss.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef DIPC_ARROW_STATUS_HPP
#define DIPC_ARROW_STATUS_HPP

#include <dipc/result.hpp>

#include <arrow/result.h>
#include <arrow/status.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace dipc {

/// The libdipc error that an arrow::Status carries.
class StatusDetail final : public arrow::StatusDetail {
 public:
  explicit StatusDetail(Error error) noexcept : error_(std::move(error)) {}

  const char* type_id() const override { return kTypeId; }
  std::string ToString() const override { return to_string(error_.status()); }
  [[nodiscard]] const Error& error() const noexcept { return error_; }

  static constexpr const char* kTypeId = "dipc::StatusDetail";

 private:
  Error error_;
};

/// The libdipc error behind a status of a reader of to_reader(); nullopt where it is of other make.
[[nodiscard]] inline std::optional<Error> error_of(const arrow::Status& status) {
  const auto& detail = status.detail();
  if (detail == nullptr || std::strcmp(detail->type_id(), StatusDetail::kTypeId) != 0) {
    return std::nullopt;
  }
  return static_cast<const StatusDetail&>(*detail).error();
}

/// An error as a status of Arrow's, which error_of() reads in full.
[[nodiscard]] inline arrow::Status to_arrow(const Error& error) {
  const auto code = [status = error.status()] {
    switch (status) {
      case Status::null_argument:
      case Status::invalid_argument:
      case Status::invalid_uri:
      case Status::invalid_data: return arrow::StatusCode::Invalid;
      case Status::unsupported: return arrow::StatusCode::NotImplemented;
      case Status::not_found: return arrow::StatusCode::KeyError;
      case Status::already_exists: return arrow::StatusCode::AlreadyExists;
      case Status::cancelled: return arrow::StatusCode::Cancelled;
      case Status::out_of_memory: return arrow::StatusCode::OutOfMemory;
      default: return arrow::StatusCode::IOError;
    }
  }();
  return {code, std::string(error.text()), std::make_shared<StatusDetail>(error)};
}

/// A failure of Arrow's as an error: libdipc's own where it carries one, otherwise Status::provider
/// with the text.
[[nodiscard]] inline Error from_arrow(const arrow::Status& status) {
  if (auto own = error_of(status)) return *std::move(own);
  const std::string text = status.CodeAsString() + ": " + status.message();
  if (status.IsOutOfMemory()) return Error(Status::out_of_memory, text);
  if (status.IsCancelled()) return Error(Status::cancelled, text);
  return Error(Status::provider, text);
}

}  // namespace dipc

#endif  // DIPC_ARROW_STATUS_HPP
