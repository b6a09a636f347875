#!/bin/bash
# Builds ADBC's validation suite (C++) for this driver, and runs it against a host of SQL.
#
#   DIPC_ADBC_DRIVER=libadbc_driver_dipc.so run.sh ARROW_ADBC_SOURCE [GTEST_OPTION]...
#
# Needs GoogleTest with GoogleMock, and a Python with the package dipc and what requirements.txt has.
set -euo pipefail
export DIPC_ADBC_DRIVER=${DIPC_ADBC_DRIVER:?names the shared library of the driver}
export DIPC_ADBC_URI=shm:@dipc-adbc-validation-$$
source=$(realpath "${1:?the folder of a checkout of apache/arrow-adbc}")/c
shift
here=$(dirname "$(realpath "$0")")
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT

# The sources include <nanoarrow/...>, which lies in a folder of that name.
flags=(-O0 -w -I"$source" -I"$source/include" -I"$source/driver" -I"$source/vendor"
    -I"$source/vendor/nanoarrow" -I"$source/vendor/fmt/include"
    -I"$source/vendor/portable-snippets/include" -DADBC_CONDA_BUILD=0 -DFMT_HEADER_ONLY)
for file in "$source"/vendor/nanoarrow/nanoarrow.c "$source"/driver/common/utils.c; do
    ${CC:-cc} "${flags[@]}" -c "$file" -o "$made/$(basename "$file").o"
done
for file in "$source"/validation/*.cc \
    "$source"/driver_manager/adbc_driver_manager{,_api,_driver_loading,_profiles}.cc \
    "$here/dipc_test.cc"; do
    ${CXX:-c++} -std=c++20 -include cstdint "${flags[@]}" ${CXXFLAGS:-} \
        -c "$file" -o "$made/$(basename "$file").o"
done
${CXX:-c++} "$made"/*.o -o "$made/validate" ${LDFLAGS:-} -lgmock -lgtest -lgtest_main -lpthread -ldl

coproc host { exec ${PYTHON:-python3} "$here/../python/sql_server.py" "$DIPC_ADBC_URI"; }
read -r -u "${host[0]}" ready
echo "$ready"
"$made/validate" "$@"
