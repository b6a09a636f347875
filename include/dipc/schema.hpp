// Schema: an owned ArrowSchema that can be made, and copied.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef DIPC_SCHEMA_HPP
#define DIPC_SCHEMA_HPP

#include <dipc/metadata.hpp>
#include <dipc/owned.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dipc {

/// The schema of a table, or a field of one: a format as in Arrow's C data interface, a name, and
/// children. A table is a struct ("+s") of its columns.
class Schema : public detail::Owned<ArrowSchema> {
 public:
  using Owned::Owned;

  /// Makes a field. The children and the dictionary (the schema of the values, where `format` is
  /// that of indices) are moved into it.
  [[nodiscard]] static Schema field(std::string_view format, std::string_view name,
                                    std::vector<Schema> children = {},
                                    std::int64_t flags = ARROW_FLAG_NULLABLE,
                                    Schema dictionary = {}, const Metadata& metadata = {}) {
    auto parts = std::make_unique<Parts>();
    parts->format = format;
    parts->name = name;
    parts->metadata = encode_metadata(metadata);
    parts->children = std::move(children);
    parts->dictionary = std::move(dictionary);
    return of(std::move(parts), flags);
  }

  /// Makes the schema of a table from those of its columns.
  [[nodiscard]] static Schema table(std::vector<Schema> columns, const Metadata& metadata = {}) {
    return field("+s", "", std::move(columns), 0, {}, metadata);
  }

  /// A copy of `source`, which may be anybody's and must not be released.
  [[nodiscard]] static Schema copy_of(const ArrowSchema& source) {
    auto parts = std::make_unique<Parts>();
    parts->format = source.format;
    if (source.name != nullptr) parts->name = source.name;
    if (source.metadata != nullptr) {
      parts->metadata.assign(source.metadata, metadata_size(source.metadata));
    }
    for (std::int64_t i = 0; i < source.n_children; i++) {
      parts->children.push_back(copy_of(*source.children[i]));
    }
    if (source.dictionary != nullptr) parts->dictionary = copy_of(*source.dictionary);
    return of(std::move(parts), source.flags);
  }

  /// A copy; nothing where there is nothing.
  [[nodiscard]] Schema copy() const { return *this ? copy_of(*get()) : Schema(); }

 private:
  /// What the pointers of the struct lead to.
  struct Parts {
    std::string format, name, metadata;
    std::vector<Schema> children;
    std::vector<ArrowSchema*> pointers;
    detail::Owned<ArrowSchema> dictionary;
  };

  static Schema of(std::unique_ptr<Parts> parts, std::int64_t flags) {
    for (Schema& child : parts->children) parts->pointers.push_back(child.get());
    Schema schema;
    schema->format = parts->format.c_str();
    schema->name = parts->name.c_str();
    schema->metadata = parts->metadata.empty() ? nullptr : parts->metadata.data();
    schema->flags = flags;
    schema->n_children = static_cast<std::int64_t>(parts->children.size());
    schema->children = parts->pointers.data();
    schema->dictionary = parts->dictionary ? parts->dictionary.get() : nullptr;
    schema->release = [](ArrowSchema* released) {
      released->release = nullptr;
      delete static_cast<Parts*>(released->private_data);
    };
    schema->private_data = parts.release();
    return schema;
  }
};

}  // namespace dipc

#endif  // DIPC_SCHEMA_HPP
