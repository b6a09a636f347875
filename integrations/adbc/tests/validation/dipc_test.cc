// ADBC's own validation suite on the driver of libdipc. The host that answers is the one of
// tests/python/sql_server.py: what a column's type becomes in DuckDB is no matter of the driver.

#include <cstdlib>
#include <optional>
#include <string>

#include <arrow-adbc/adbc.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nanoarrow/nanoarrow.h>

#include "validation/adbc_validation.h"
#include "validation/adbc_validation_util.h"

namespace {

using adbc_validation::Handle;

AdbcStatusCode Run(AdbcConnection* connection, const std::string& query, AdbcError* error) {
  Handle<AdbcStatement> statement;
  AdbcStatusCode status = AdbcStatementNew(connection, &statement.value, error);
  if (status != ADBC_STATUS_OK) return status;
  status = AdbcStatementSetSqlQuery(&statement.value, query.c_str(), error);
  if (status != ADBC_STATUS_OK) return status;
  return AdbcStatementExecuteQuery(&statement.value, nullptr, nullptr, error);
}

class DipcQuirks : public adbc_validation::DriverQuirks {
 public:
  AdbcStatusCode SetupDatabase(AdbcDatabase* database, AdbcError* error) const override {
    const std::pair<const char*, const char*> options[] = {
        {"driver", std::getenv("DIPC_ADBC_DRIVER")},
        {"uri", std::getenv("DIPC_ADBC_URI")},
        {"dipc.ingest.modes", "create,append,replace,create_append"},
    };
    for (const auto& [name, value] : options) {
      const AdbcStatusCode status = AdbcDatabaseSetOption(database, name, value, error);
      if (status != ADBC_STATUS_OK) return status;
    }
    return ADBC_STATUS_OK;
  }

  AdbcStatusCode DropTable(AdbcConnection* connection, const std::string& name,
                           AdbcError* error) const override {
    return Run(connection, "DROP TABLE IF EXISTS " + QuoteIdentifier(name), error);
  }

  // What DuckDB gives for a column that was created with a type.
  ArrowType IngestSelectRoundTripType(ArrowType type) const override {
    switch (type) {
      case NANOARROW_TYPE_DURATION:
        return NANOARROW_TYPE_INTERVAL_MONTH_DAY_NANO;
      case NANOARROW_TYPE_LARGE_STRING:
      case NANOARROW_TYPE_STRING_VIEW:
        return NANOARROW_TYPE_STRING;
      case NANOARROW_TYPE_LARGE_BINARY:
      case NANOARROW_TYPE_FIXED_SIZE_BINARY:
      case NANOARROW_TYPE_BINARY_VIEW:
        return NANOARROW_TYPE_BINARY;
      default:
        return type;
    }
  }

  bool supports_cancel() const override { return true; }
  bool supports_concurrent_statements() const override { return true; }
  bool supports_execute_schema() const override { return true; }
  bool supports_partitioned_data() const override { return true; }
  bool supports_transactions() const override { return false; }
  bool supports_dynamic_parameter_binding() const override { return false; }
  // DuckDB takes no halves.
  bool supports_ingest_float16() const override { return false; }

  std::optional<adbc_validation::SqlInfoValue> supports_get_sql_info(
      uint32_t code) const override {
    switch (code) {
      case ADBC_INFO_DRIVER_NAME:
        return "ADBC driver of libdipc";
      case ADBC_INFO_DRIVER_ADBC_VERSION:
        return ADBC_VERSION_1_1_0;
      case ADBC_INFO_VENDOR_NAME:
        return "libdipc";
      default:
        return std::nullopt;
    }
  }
};

template <typename Suite>
class Fixture : public ::testing::Test, public Suite {
 public:
  const adbc_validation::DriverQuirks* quirks() const override { return &quirks_; }
  void SetUp() override { ASSERT_NO_FATAL_FAILURE(this->SetUpTest()); }
  void TearDown() override { ASSERT_NO_FATAL_FAILURE(this->TearDownTest()); }

 private:
  DipcQuirks quirks_;
};

class DipcDatabase : public Fixture<adbc_validation::DatabaseTest> {};
ADBCV_TEST_DATABASE(DipcDatabase)

class DipcConnection : public Fixture<adbc_validation::ConnectionTest> {};
ADBCV_TEST_CONNECTION(DipcConnection)

class DipcStatement : public Fixture<adbc_validation::StatementTest> {
  // The suite sends null, -42, 0 and 42 of a unit; DuckDB may give them in a finer one.
  void ValidateIngestedTemporalData(ArrowArrayView* values, ArrowType type, ArrowTimeUnit unit,
                                    const char*) override {
    // DuckDB's intervals count microseconds.
    if (type == NANOARROW_TYPE_DURATION && unit == NANOARROW_TIME_UNIT_NANO) return;
    const auto count = [&](int64_t row) -> int64_t {
      if (type != NANOARROW_TYPE_DURATION) return ArrowArrayViewGetIntUnsafe(values, row);
      ArrowInterval interval;
      ArrowIntervalInit(&interval, NANOARROW_TYPE_INTERVAL_MONTH_DAY_NANO);
      ArrowArrayViewGetIntervalUnsafe(values, row, &interval);
      return interval.ns;
    };
    ASSERT_TRUE(ArrowArrayViewIsNull(values, 0));
    int64_t most = count(3);
    ASSERT_EQ(-most, count(1));
    ASSERT_EQ(0, count(2));
    while (most > 42) {
      ASSERT_EQ(0, most % 1000);
      most /= 1000;
    }
    ASSERT_EQ(42, most);
  }
};
ADBCV_TEST_STATEMENT(DipcStatement)

}  // namespace
