# Gives pyarrow::arrow: the Arrow C++ inside the pyarrow package of DIPC_PYTHON.

find_program(DIPC_PYTHON python3 REQUIRED DOC "A Python that has pyarrow")
execute_process(
  COMMAND "${DIPC_PYTHON}" -c "import glob, os, pyarrow as p; print(p.get_include()); print(next(f for d in p.get_library_dirs() for f in glob.glob(os.path.join(d, 'libarrow.so*'))))"
  OUTPUT_VARIABLE pyarrow_paths RESULT_VARIABLE pyarrow_failed ERROR_VARIABLE pyarrow_error
  OUTPUT_STRIP_TRAILING_WHITESPACE)
if(pyarrow_failed)
  message(FATAL_ERROR "${DIPC_PYTHON} has no pyarrow (pip install -r tools/requirements.txt, or "
    "-DDIPC_PYTHON=PATH): ${pyarrow_error}")
endif()
string(REPLACE "\n" ";" pyarrow_paths "${pyarrow_paths}")
list(GET pyarrow_paths 0 pyarrow_include)
list(GET pyarrow_paths 1 pyarrow_library)
if(NOT TARGET pyarrow::arrow)
  # By its path: the package has no libarrow.so, only one with the number at its end.
  add_library(pyarrow::arrow SHARED IMPORTED)
  set_target_properties(pyarrow::arrow PROPERTIES
    IMPORTED_LOCATION "${pyarrow_library}"
    INTERFACE_INCLUDE_DIRECTORIES "${pyarrow_include}"
    # Its warnings are not ours to mend, in projects too that take imported headers seriously.
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${pyarrow_include}"
    # What Arrow's headers ask for since version 23.
    INTERFACE_COMPILE_FEATURES cxx_std_20)
endif()
