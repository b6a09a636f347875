# cargo, of the Rust version that the sources ask for, is a program of the machine: vcpkg has none.
vcpkg_download_distfile(archive
  URLS "https://github.com/libdipc/libdipc/releases/download/v${VERSION}/libdipc-${VERSION}.tar.gz"
  FILENAME "libdipc-${VERSION}.tar.gz"
  SHA512 0
)
vcpkg_extract_source_archive(SOURCE_PATH ARCHIVE "${archive}")

# Cargo's release profile serves programs of every build type, for the interface is C.
set(VCPKG_BUILD_TYPE release)

string(COMPARE EQUAL "${VCPKG_LIBRARY_LINKAGE}" "dynamic" shared)
string(COMPARE EQUAL "${VCPKG_LIBRARY_LINKAGE}" "static" static)
vcpkg_check_features(OUT_FEATURE_OPTIONS features FEATURES tools DIPC_BUILD_COMMAND)
vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS
    "-DDIPC_BUILD_SHARED=${shared}"
    "-DDIPC_BUILD_STATIC=${static}"
    ${features}
)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(PACKAGE_NAME dipc CONFIG_PATH lib/cmake/dipc)
vcpkg_fixup_pkgconfig()
if("tools" IN_LIST FEATURES)
  vcpkg_copy_tools(TOOL_NAMES dipc AUTO_CLEAN)
endif()

# Debug information, and what Debian's packages have.
file(REMOVE_RECURSE
  "${CURRENT_PACKAGES_DIR}/lib/.debug"
  "${CURRENT_PACKAGES_DIR}/bin"
  "${CURRENT_PACKAGES_DIR}/lib/systemd"
  "${CURRENT_PACKAGES_DIR}/share/doc")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
