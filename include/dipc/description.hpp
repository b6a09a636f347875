// Description: what a ticket stands for, told before its table is sent.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef DIPC_DESCRIPTION_HPP
#define DIPC_DESCRIPTION_HPP

#include <dipc/columns.hpp>
#include <dipc/generate.hpp>
#include <dipc/headers.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dipc {

/// A part of a table, or a ticket of a list.
struct Endpoint {
  std::string descriptor = {};  ///< The ticket to ask for: any bytes.
  /// Servers that have it, the best first. Empty: the server that gave the description.
  std::vector<std::string> uris = {};
  std::optional<std::uint64_t> rows = {};   ///< nullopt: not known.
  std::optional<std::uint64_t> bytes = {};  ///< Of its bodies. nullopt: not known.
};

/// What a ticket stands for; a member that is not set is not known. Client::describe() gives one.
/// Server::set_description() takes one, and a handler answers with one: to_stream() makes a stream
/// of it, and a handler that gives nothing else may return the Description itself.
struct Description {
  Schema schema = {};                         ///< Of the table. A released one: not known.
  std::optional<std::uint64_t> rows = {};     ///< Of the whole table.
  std::optional<std::uint64_t> bytes = {};    ///< Of all bodies.
  std::optional<std::uint64_t> batches = {};  ///< Record batches.
  std::vector<Endpoint> endpoints = {};       ///< The parts of the table, or the tickets of a list.
  bool is_ordered = false;  ///< Whether the order of the endpoints is that of the table.
  /// Of the server's answer. Handlers answer with headers by RequestRef::add_headers() instead.
  Headers headers = {};
};

namespace detail {

using DescriptionHandle = Handle<dipc_description, dipc_description_free>;

/// A description as dipc.h takes it, but for its headers.
inline Result<DescriptionHandle> build(const Description& description) {
  auto raw = call_for<dipc_description*>(dipc_description_new);
  if (!raw) return std::move(raw).error();
  DescriptionHandle built(*raw);
  if (description.schema) {
    auto done = call([&](dipc_error** error) {
      return dipc_description_set_schema(built.get(), description.schema.get(), error);
    });
    if (!done) return std::move(done).error();
  }
  const std::pair<std::int32_t, std::optional<std::uint64_t>> totals[] = {
      {DIPC_TOTAL_ROWS, description.rows},
      {DIPC_TOTAL_BYTES, description.bytes},
      {DIPC_TOTAL_BATCHES, description.batches}};
  for (const auto& [total, value] : totals) {
    auto done = call([&, which = total, number = value.value_or(DIPC_UNKNOWN)](dipc_error** error) {
      return dipc_description_set_total(built.get(), which, number, error);
    });
    if (!done) return std::move(done).error();
  }
  auto ordered = call([&](dipc_error** error) {
    return dipc_description_set_ordered(built.get(), description.is_ordered, error);
  });
  if (!ordered) return std::move(ordered).error();
  for (const Endpoint& endpoint : description.endpoints) {
    std::vector<const char*> uris;
    for (const std::string& uri : endpoint.uris) {
      auto text = c_string(uri, Status::invalid_uri, "the URI of an endpoint");
      if (!text) return std::move(text).error();
      uris.push_back(uri.c_str());
    }
    auto done = call([&](dipc_error** error) {
      return dipc_description_add_endpoint(
          built.get(), byte_pointer(endpoint.descriptor), endpoint.descriptor.size(), uris.data(),
          uris.size(), endpoint.rows.value_or(DIPC_UNKNOWN), endpoint.bytes.value_or(DIPC_UNKNOWN),
          error);
    });
    if (!done) return std::move(done).error();
  }
  return built;
}

/// A number of dipc.h that may be DIPC_UNKNOWN.
inline std::optional<std::uint64_t> known(std::uint64_t number) noexcept {
  if (number == DIPC_UNKNOWN) return std::nullopt;
  return number;
}

/// Reads an endpoint of a description of dipc.h.
inline Result<Endpoint> endpoint_of(const dipc_description* raw, std::size_t index) {
  auto descriptor = call_for_text([&](char* buffer, std::size_t size, std::size_t* length,
                                      dipc_error** error) {
    return dipc_description_endpoint_descriptor(
        raw, index, reinterpret_cast<std::uint8_t*>(buffer), size, length, error);
  });
  if (!descriptor) return std::move(descriptor).error();
  Endpoint endpoint;
  endpoint.descriptor = *std::move(descriptor);
  endpoint.rows = known(dipc_description_endpoint_total(raw, index, DIPC_TOTAL_ROWS));
  endpoint.bytes = known(dipc_description_endpoint_total(raw, index, DIPC_TOTAL_BYTES));
  const std::size_t count = dipc_description_endpoint_uri_count(raw, index);
  for (std::size_t i = 0; i < count; i++) {
    auto uri = call_for_text([&](char* buffer, std::size_t size, std::size_t* length,
                                 dipc_error** error) {
      return dipc_description_endpoint_uri(raw, index, i, buffer, size, length, error);
    });
    if (!uri) return std::move(uri).error();
    endpoint.uris.push_back(*std::move(uri));
  }
  return endpoint;
}

/// Reads a description of dipc.h.
inline Result<Description> description_of(const dipc_description* raw) {
  Description description;
  auto has_schema = call([&](dipc_error** error) {
    return dipc_description_schema(raw, description.schema.get(), error);
  });
  if (!has_schema && has_schema.status() != Status::not_found) return std::move(has_schema).error();
  description.rows = known(dipc_description_total(raw, DIPC_TOTAL_ROWS));
  description.bytes = known(dipc_description_total(raw, DIPC_TOTAL_BYTES));
  description.batches = known(dipc_description_total(raw, DIPC_TOTAL_BATCHES));
  description.is_ordered = dipc_description_is_ordered(raw);
  const std::size_t count = dipc_description_endpoint_count(raw);
  for (std::size_t i = 0; i < count; i++) {
    auto endpoint = endpoint_of(raw, i);
    if (!endpoint) return std::move(endpoint).error();
    description.endpoints.push_back(*std::move(endpoint));
  }
  auto headers = call_for_headers([raw](dipc_headers** out, dipc_error** error) {
    return dipc_description_headers(raw, out, error);
  });
  if (!headers) return std::move(headers).error();
  description.headers = *std::move(headers);
  return description;
}

/// The lists of a column of lists of texts ("+l" of "u"); nothing where it is no such column.
inline std::optional<std::vector<std::vector<std::string>>> lists_of(const Schema& schema,
                                                                     const DeviceArray& batch,
                                                                     std::string_view name) {
  const auto place = place_of(schema, batch, name);
  if (!place) return std::nullopt;
  const ArrowSchema& field = *schema->children[*place];
  if (std::string_view(field.format) != "+l" || field.n_children != 1 ||
      std::string_view(field.children[0]->format) != "u" ||
      field.children[0]->dictionary != nullptr) {
    return std::nullopt;
  }
  const ArrowArray& lists = *batch->array.children[*place];
  const ArrowArray& texts = *lists.children[0];
  const std::int32_t* ends =
      static_cast<const std::int32_t*>(lists.buffers[1]) + lists.offset + batch->array.offset;
  const std::int32_t* offsets = static_cast<const std::int32_t*>(texts.buffers[1]) + texts.offset;
  const auto* bytes = static_cast<const char*>(texts.buffers[2]);
  std::vector<std::vector<std::string>> all(static_cast<std::size_t>(batch->array.length));
  for (std::size_t row = 0; row < all.size(); row++) {
    for (std::int32_t i = ends[row]; i < ends[row + 1]; i++) {
      all[row].emplace_back(bytes + offsets[i],
                            static_cast<std::size_t>(offsets[i + 1] - offsets[i]));
    }
  }
  return all;
}

}  // namespace detail

/// Appends the tickets of a batch of Client::start_list() to `out`. The library has checked its
/// values.
///
/// @return Status::invalid_data: the table is no list. Status::invalid_argument: there is no batch.
///         Status::unsupported: it does not lie on the host.
inline Result<void> read_list(const Schema& schema, const DeviceArray& batch,
                              std::vector<Endpoint>& out) {
  // Where the batch itself cannot be read, nothing is known of the server.
  const auto place = detail::place_of(schema, batch, "descriptor");
  if (!place && place.status() != Status::not_found) return place.error();
  const auto descriptors = ColumnView<std::string_view>::of(schema, batch, "descriptor");
  auto uris = detail::lists_of(schema, batch, "uris");
  const auto rows = ColumnView<std::int64_t>::of(schema, batch, "rows");
  const auto bytes = ColumnView<std::int64_t>::of(schema, batch, "bytes");
  if (!descriptors || !uris || !rows || !bytes) {
    return Error(Status::invalid_data, "the server answers with a table that is no list: its "
                                       "handler may not know the verb");
  }
  const auto total = [](const ColumnView<std::int64_t>& column, std::size_t row) {
    return column.is_null(row) || column[row] < 0
               ? std::nullopt
               : std::optional<std::uint64_t>(static_cast<std::uint64_t>(column[row]));
  };
  for (std::size_t row = 0; row < descriptors->size(); row++) {
    Endpoint endpoint;
    endpoint.descriptor = (*descriptors)[row];
    endpoint.uris = std::move((*uris)[row]);
    endpoint.rows = total(*rows, row);
    endpoint.bytes = total(*bytes, row);
    out.push_back(std::move(endpoint));
  }
  return {};
}

template <>
struct StreamTraits<Description> {
  static Result<Stream> convert(const Description& description) {
    auto built = detail::build(description);
    if (!built) return std::move(built).error();
    Stream stream;
    auto done = detail::call([&](dipc_error** error) {
      return dipc_description_to_stream(built->get(), stream.get(), error);
    });
    if (!done) return std::move(done).error();
    return stream;
  }
};

}  // namespace dipc

#endif  // DIPC_DESCRIPTION_HPP
