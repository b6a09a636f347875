"""The Conan package: the library, static or shared, the headers, and the command if it is asked for."""

import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, get, load, rmdir, save

required_conan_version = ">=2.0"


class LibdipcConan(ConanFile):
    name = "libdipc"
    description = "Moves Apache Arrow tables between processes without serialising them"
    license = "Apache-2.0"
    homepage = "https://github.com/libdipc/libdipc"
    url = "https://github.com/conan-io/conan-center-index"
    topics = ("arrow", "ipc", "rdma", "shared-memory", "zero-copy")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "with_command": [True, False]}
    default_options = {"shared": False, "with_command": False}

    def layout(self):
        cmake_layout(self, src_folder="src")

    def validate(self):
        if self.settings.os != "Linux" or self.settings.arch not in ("x86_64", "armv8"):
            raise ConanInvalidConfiguration("libdipc is for Linux on x86-64 and aarch64")

    def package_id(self):
        # The interface is C, and cargo always builds its release profile.
        self.info.settings.rm_safe("compiler")
        self.info.settings.rm_safe("build_type")

    def source(self):
        get(self, **self.conan_data["sources"][self.version], strip_root=True)

    def generate(self):
        # cargo is a program of the machine, of the version that Cargo.toml asks for.
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["DIPC_BUILD_SHARED"] = bool(self.options.shared)
        toolchain.cache_variables["DIPC_BUILD_STATIC"] = not self.options.shared
        toolchain.cache_variables["DIPC_BUILD_COMMAND"] = bool(self.options.with_command)
        toolchain.cache_variables["CMAKE_INSTALL_LIBDIR"] = "lib"
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        # All but the debug information; Conan makes files for CMake and pkg-config itself.
        for component in ("runtime", "dev", "tools"):
            CMake(self).install(component=component)
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        for folder in ("lib/cmake", "lib/pkgconfig", "lib/systemd", "share/doc"):
            rmdir(self, os.path.join(self.package_folder, folder))
        # What a program needs beside the static library, for package_info, which has no sources.
        flags = load(self, os.path.join(self.source_folder, "cmake", "native-libs.txt"))
        save(self, os.path.join(self.package_folder, "res", "native-libs.txt"), flags)

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "dipc")
        self.cpp_info.set_property("pkg_config_name", "none")

        library = self.cpp_info.components["dipc"]
        library.set_property("cmake_target_name", "dipc::dipc")
        kind = "shared" if self.options.shared else "static"
        library.set_property("cmake_target_aliases", [f"dipc::{kind}"])
        library.set_property("pkg_config_name", "dipc")
        library.libs = ["dipc"]
        if not self.options.shared:
            flags = load(self, os.path.join(self.package_folder, "res", "native-libs.txt"))
            library.system_libs = list(dict.fromkeys(re.findall(r"-l(\S+)", flags)))

        headers = self.cpp_info.components["cpp"]
        headers.set_property("cmake_target_name", "dipc::cpp")
        headers.requires = ["dipc"]
        headers.libs = []
        headers.system_libs = ["dl"]
