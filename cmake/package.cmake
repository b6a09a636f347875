# Packages, made by cpack: Debian's from the components runtime, dev, tools and debug, and one relocatable
# tarball of everything. tools/package.sh calls it.

set(CPACK_PACKAGE_NAME dipc)
set(CPACK_PACKAGE_VENDOR "The libdipc developers")
set(CPACK_PACKAGE_CONTACT "${contact}")
set(CPACK_PACKAGE_HOMEPAGE_URL "${PROJECT_HOMEPAGE_URL}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Moves Apache Arrow tables between processes without serialising them")
set(CPACK_PACKAGE_VERSION "${PROJECT_VERSION}")
set(CPACK_RESOURCE_FILE_LICENSE "${CMAKE_CURRENT_SOURCE_DIR}/LICENSE")
set(CPACK_PACKAGE_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/packages")
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_COMPONENTS_ALL runtime dev tools debug)

# The tarball: everything below one folder, which may lie anywhere.
string(TOLOWER "${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}" system)
set(CPACK_PACKAGE_FILE_NAME "dipc-${PROJECT_VERSION}-${system}")
set(CPACK_ARCHIVE_COMPONENT_INSTALL OFF)

# Debian's: names and dependencies by its policy for shared libraries.
set(library_package "libdipc${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}")
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME "${library_package}")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SUGGESTS "libucx0")
# From it dpkg-shlibdeps knows what the package of a program that links libdipc.so depends on.
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_DEBIAN_RUNTIME_DESCRIPTION "Moves Apache Arrow tables between processes (library)")
set(CPACK_DEBIAN_DEV_PACKAGE_NAME libdipc-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "${library_package} (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_DEV_DESCRIPTION "Moves Apache Arrow tables between processes (headers, static library)")
set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME dipc-tools)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SUGGESTS "libucx0")
set(CPACK_DEBIAN_TOOLS_DESCRIPTION "Moves Apache Arrow tables between processes (the dipc command)")

set(CPACK_DEBIAN_DEBUG_PACKAGE_NAME "${library_package}-dbg")
set(CPACK_DEBIAN_DEBUG_PACKAGE_SECTION debug)
set(CPACK_DEBIAN_DEBUG_PACKAGE_DEPENDS "${library_package} (= ${PROJECT_VERSION}) | dipc-tools (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_DEBUG_DESCRIPTION "Moves Apache Arrow tables between processes (debug information)")

# What policy asks to be beside each: the licence.
foreach(entry "runtime=${library_package}" dev=libdipc-dev tools=dipc-tools "debug=${library_package}-dbg")
  string(REPLACE "=" ";" entry "${entry}")
  list(GET entry 0 component)
  list(GET entry 1 package)
  install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}/doc/${package}"
    COMPONENT "${component}" RENAME copyright)
endforeach()

include(CPack)
