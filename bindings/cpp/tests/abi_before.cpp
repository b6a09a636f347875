// Arrow's header first: dipc.h then takes the structs from there.
#include <arrow/c/abi.h>

#include <dipc/arrow.hpp>
#include <dipc/dipc.hpp>

#ifndef ARROW_STATISTICS_KEY_MAX_VALUE_EXACT
#error "Arrow's own header did not define the structs"
#endif

dipc::Stream made_before() {
  dipc::Columns columns;
  columns.add("n", std::vector<int>{1, 2, 3});
  auto schema = columns.schema();
  return dipc::generate(std::move(schema), [batch = std::move(columns).batch()]() mutable {
    return std::move(*batch);
  });
}
