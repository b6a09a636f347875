// Columns: record batches of std::vector, for programs that have no Arrow library. Numbers and
// texts, with nulls: std::nullopt, or a place in a vector of booleans. For more, use Arrow's structs or <dipc/arrow.hpp>.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef DIPC_COLUMNS_HPP
#define DIPC_COLUMNS_HPP

#include <dipc/result.hpp>
#include <dipc/schema.hpp>
#include <dipc/span.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace dipc {
namespace detail {

/// The format of a number in Arrow's C data interface.
template <class T>
constexpr const char* format_of() noexcept {
  static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool> && sizeof(T) <= 8,
                "a column holds integers, float or double; Arrow's booleans are bits");
  if constexpr (std::is_floating_point_v<T>) {
    return sizeof(T) == 4 ? "f" : "g";
  } else {
    constexpr std::size_t size = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
    constexpr const char* formats[2][4] = {{"C", "S", "I", "L"}, {"c", "s", "i", "l"}};
    return formats[std::is_signed_v<T> ? 1 : 0][size];
  }
}

/// Makes an array whose pointers lead into `Parts`, which has `buffers` and `children`.
template <class Parts>
Array array_of(std::unique_ptr<Parts> parts, std::int64_t length, std::int64_t null_count) {
  Array array;
  array->length = length;
  array->null_count = null_count;
  array->n_buffers = static_cast<std::int64_t>(parts->buffers.size());
  array->buffers = parts->buffers.data();
  array->n_children = static_cast<std::int64_t>(parts->children.size());
  array->children = parts->children.data();
  array->release = [](ArrowArray* released) {
    released->release = nullptr;
    delete static_cast<Parts*>(released->private_data);
  };
  array->private_data = parts.release();
  return array;
}

/// The place of a column among those of a batch.
inline Result<std::int64_t> place_of(const Schema& schema, const DeviceArray& batch,
                                     std::string_view name) {
  if (!schema || !batch) return Error(Status::invalid_argument, "there is no batch to look at");
  if (batch->device_type != ARROW_DEVICE_CPU) {
    return Error(Status::unsupported, "the batch does not lie on the host");
  }
  for (std::int64_t i = 0; i < schema->n_children && i < batch->array.n_children; i++) {
    const ArrowSchema& field = *schema->children[i];
    if (field.name != nullptr && field.name == name) return i;
  }
  return Error(Status::not_found, "there is no column " + std::string(name));
}

}  // namespace detail

/// A record batch in the making: add() its columns, then batch() and schema().
class Columns {
 public:
  /// Adds numbers. The vector is moved and not copied; with an ArenaAllocator it is lent to clients
  /// without a copy, too.
  template <class T, class A, class = std::enable_if_t<std::is_arithmetic_v<T>>>
  Columns& add(std::string_view name, std::vector<T, A>&& values) {
    return add_numbers(name, std::move(values), {}, 0);
  }

  /// Adds numbers, of which those are null whose place in `valid` is false.
  template <class T, class A, class = std::enable_if_t<std::is_arithmetic_v<T>>>
  Columns& add(std::string_view name, std::vector<T, A>&& values, const std::vector<bool>& valid) {
    same_length(name, values.size(), valid.size());
    Validity validity(valid.size());
    for (std::size_t row = 0; row < valid.size(); row++) validity.set(row, valid[row]);
    return add_numbers(name, std::move(values), std::move(validity.bits), validity.nulls);
  }

  /// Adds texts (UTF-8), which are copied.
  Columns& add(std::string_view name, Span<const std::string> texts) {
    return add_texts(name, texts);
  }
  Columns& add(std::string_view name, Span<const std::string_view> texts) {
    return add_texts(name, texts);
  }

  /// Adds texts (UTF-8), which are copied, and a null for each std::nullopt.
  Columns& add(std::string_view name, Span<const std::optional<std::string>> texts) {
    return add_texts(name, texts);
  }
  Columns& add(std::string_view name, Span<const std::optional<std::string_view>> texts) {
    return add_texts(name, texts);
  }

  /// The schema of the columns so far.
  [[nodiscard]] Schema schema() const {
    std::vector<Schema> copies;
    for (const Schema& field : fields_) copies.push_back(field.copy());
    return Schema::table(std::move(copies));
  }

  /// The batch; the columns are moved into it. Status::invalid_data where their lengths differ.
  Result<DeviceArray> batch() && {
    if (error_.has_value()) return *error_;
    const std::int64_t rows = columns_.empty() ? 0 : columns_.front()->length;
    auto parts = std::make_unique<Table>();
    parts->columns = std::move(columns_);
    for (Array& column : parts->columns) parts->children.push_back(column.get());
    parts->buffers = {nullptr};
    return DeviceArray::from_host(detail::array_of(std::move(parts), rows, 0));
  }

 private:
  template <class T, class A>
  struct Numbers {
    std::vector<T, A> values;
    std::vector<std::uint8_t> validity;
    std::vector<const void*> buffers;
    std::vector<ArrowArray*> children;
  };
  /// A bit for each row, set where there is a value.
  struct Validity {
    explicit Validity(std::size_t rows) : bits((rows + 7) / 8) {}

    void set(std::size_t row, bool valid) noexcept {
      if (valid) {
        bits[row / 8] = static_cast<std::uint8_t>(bits[row / 8] | (1U << (row % 8)));
      } else {
        nulls++;
      }
    }

    std::vector<std::uint8_t> bits;
    std::int64_t nulls = 0;
  };
  struct Texts {
    std::vector<std::uint8_t> validity;
    std::vector<std::int64_t> offsets;
    std::string bytes;
    std::vector<const void*> buffers;
    std::vector<ArrowArray*> children;
  };
  struct Table {
    std::vector<Array> columns;
    std::vector<const void*> buffers;
    std::vector<ArrowArray*> children;
  };

  template <class T, class A>
  Columns& add_numbers(std::string_view name, std::vector<T, A>&& values,
                       std::vector<std::uint8_t> validity, std::int64_t nulls) {
    const auto length = static_cast<std::int64_t>(values.size());
    auto parts = std::make_unique<Numbers<T, A>>(
        Numbers<T, A>{std::move(values), std::move(validity), {}, {}});
    parts->buffers = {parts->validity.empty() ? nullptr : parts->validity.data(),
                      parts->values.data()};
    return add_column(Schema::field(detail::format_of<T>(), name),
                      detail::array_of(std::move(parts), length, nulls));
  }

  /// Adds texts, or optional texts.
  template <class T>
  Columns& add_texts(std::string_view name, Span<const T> texts) {
    auto parts = std::make_unique<Texts>();
    Validity validity(texts.size());
    parts->offsets.reserve(texts.size() + 1);
    parts->offsets.push_back(0);
    for (std::size_t row = 0; row < texts.size(); row++) {
      if constexpr (std::is_convertible_v<const T&, std::string_view>) {
        validity.set(row, true);
        parts->bytes += texts[row];
      } else {
        validity.set(row, texts[row].has_value());
        if (texts[row].has_value()) parts->bytes += *texts[row];
      }
      parts->offsets.push_back(static_cast<std::int64_t>(parts->bytes.size()));
    }
    if (validity.nulls > 0) parts->validity = std::move(validity.bits);
    parts->buffers = {parts->validity.empty() ? nullptr : parts->validity.data(),
                      parts->offsets.data(), parts->bytes.data()};
    const auto length = static_cast<std::int64_t>(texts.size());
    return add_column(Schema::field("U", name),
                      detail::array_of(std::move(parts), length, validity.nulls));
  }

  Columns& add_column(Schema field, Array column) {
    if (!columns_.empty()) {
      same_length(field->name, static_cast<std::size_t>(column->length),
                  static_cast<std::size_t>(columns_.front()->length));
    }
    fields_.push_back(std::move(field));
    columns_.push_back(std::move(column));
    return *this;
  }

  void same_length(std::string_view name, std::size_t length, std::size_t other) {
    if (length == other || error_.has_value()) return;
    error_ = Error(Status::invalid_data, "column " + std::string(name) + " has " +
                                             std::to_string(length) + " rows where there are " +
                                             std::to_string(other));
  }

  std::vector<Schema> fields_;
  std::vector<Array> columns_;
  std::optional<Error> error_;
};

namespace detail {

/// What a column's rows are read as, and what they are: `Value` is T without its std::optional.
template <class T>
struct ColumnTraits {
  using Value = T;
  static constexpr bool is_optional = false;
};
template <class T>
struct ColumnTraits<std::optional<T>> {
  using Value = T;
  static constexpr bool is_optional = true;
};

}  // namespace detail

/// One column of a batch: of numbers (T), or of texts or bytes (T = std::string_view, which refers
/// to the batch, or std::string, which is a copy). With T = std::optional of one of these a null is
/// std::nullopt. Refers to the batch.
template <class T>
class ColumnView {
  using Value = typename detail::ColumnTraits<T>::Value;
  static constexpr bool is_optional = detail::ColumnTraits<T>::is_optional;
  static constexpr bool is_text =
      std::is_same_v<Value, std::string_view> || std::is_same_v<Value, std::string>;

 public:
  using value_type = T;

  /// The column of a batch by its name.
  ///
  /// @return Status::not_found: no such column. Status::invalid_argument: it is of another type.
  ///         Status::unsupported: it lies on another device.
  static Result<ColumnView> of(const Schema& schema, const DeviceArray& batch,
                               std::string_view name) {
    auto place = detail::place_of(schema, batch, name);
    if (!place) return std::move(place).error();
    const ArrowSchema& field = *schema->children[*place];
    const std::string_view format = field.format;
    const bool is_large = format == "U" || format == "Z";
    const bool fits = field.dictionary == nullptr &&
                      (is_text ? is_large || format == "u" || format == "z" : format == wanted());
    if (!fits) {
      return Error(Status::invalid_argument, "column " + std::string(name) + " has the format " +
                                                 field.format + ", not " + wanted());
    }
    return ColumnView(*batch->array.children[*place], batch->array, is_large);
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  [[nodiscard]] bool is_null(std::size_t row) const noexcept {
    const std::size_t bit = offset_ + row;
    return validity_ != nullptr && ((validity_[bit / 8] >> (bit % 8)) & 1U) == 0;
  }

  /// The value. For a null it is std::nullopt where T is optional, and otherwise not defined.
  [[nodiscard]] T operator[](std::size_t row) const noexcept(!std::is_same_v<Value, std::string>) {
    if constexpr (is_optional) {
      if (is_null(row)) return std::nullopt;
    }
    if constexpr (is_text) {
      const auto begin = large_ ? static_cast<const std::int64_t*>(values_)[offset_ + row]
                                : static_cast<const std::int32_t*>(values_)[offset_ + row];
      const auto end = large_ ? static_cast<const std::int64_t*>(values_)[offset_ + row + 1]
                              : static_cast<const std::int32_t*>(values_)[offset_ + row + 1];
      // A column of empty texts may have no bytes at all.
      const auto length = static_cast<std::size_t>(end - begin);
      return length == 0 ? Value() : Value(bytes_ + begin, length);
    } else {
      return static_cast<const Value*>(values_)[offset_ + row];
    }
  }

  /// All of the column: `std::vector<std::optional<std::string>>` keeps a column of texts when its
  /// batch is gone.
  [[nodiscard]] std::vector<T> to_vector() const {
    std::vector<T> all;
    all.reserve(size_);
    for (std::size_t row = 0; row < size_; row++) all.push_back((*this)[row]);
    return all;
  }

  /// The numbers, where they lie. Those of nulls are not defined.
  [[nodiscard]] Span<const Value> values() const noexcept {
    static_assert(!is_text, "texts do not lie one after the other: use []");
    return {size_ == 0 ? nullptr : static_cast<const Value*>(values_) + offset_, size_};
  }

 private:
  ColumnView(const ArrowArray& column, const ArrowArray& table, bool large) noexcept
      : values_(column.buffers[1]),
        validity_(static_cast<const std::uint8_t*>(column.buffers[0])),
        offset_(static_cast<std::size_t>(column.offset + table.offset)),
        size_(static_cast<std::size_t>(table.length)),
        large_(large) {
    if constexpr (is_text) bytes_ = static_cast<const char*>(column.buffers[2]);
  }

  static constexpr const char* wanted() noexcept {
    if constexpr (is_text) {
      return "u, U, z or Z";
    } else {
      return detail::format_of<Value>();
    }
  }

  const void* values_;
  const std::uint8_t* validity_;
  const char* bytes_ = nullptr;
  std::size_t offset_;
  std::size_t size_;
  bool large_;
};

}  // namespace dipc

#endif  // DIPC_COLUMNS_HPP
