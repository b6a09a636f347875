# The recipe of libdipc_jll: libdipc.so and the header for Julia's package manager, made by
# BinaryBuilder.jl (julia build_tarballs.jl --verbose), and by Yggdrasil, where it is a folder L/libdipc.
#
# The sources come from where a release is: LIBDIPC_SOURCE is the URL of its repository, and
# LIBDIPC_COMMIT the commit of its tag. In Yggdrasil both are written out.

using BinaryBuilder, Pkg

name = "libdipc"
version = v"0.1.0"

sources = [
    GitSource(get(ENV, "LIBDIPC_SOURCE", "https://github.com/libdipc/libdipc.git"),
              get(ENV, "LIBDIPC_COMMIT", "0000000000000000000000000000000000000000")),
]

# cargo builds for the host's own C library unless it gets a target; its linker comes from the
# recipe.
script = raw"""
cd ${WORKSPACE}/srcdir/libdipc*
cargo build --release --locked --lib --target "${rust_target}"
made="target/${rust_target}/release/libdipc.so"
soname=$(patchelf --print-soname "${made}")
install -Dvm 755 "${made}" "${libdir}/${soname}"
ln -s "${soname}" "${libdir}/libdipc.so"
install -Dvm 644 -t "${includedir}" include/dipc.h include/dipc_machines.h
install_license LICENSE
"""

# Linux alone: libdipc needs memfds and pidfds. It loads UCX and CUDA where they are.
platforms = [
    Platform("x86_64", "linux"; libc = "glibc"),
    Platform("aarch64", "linux"; libc = "glibc"),
]

products = [
    LibraryProduct("libdipc", :libdipc),
]

dependencies = Dependency[]

build_tarballs(ARGS, name, version, sources, script, platforms, products, dependencies;
               compilers = [:rust, :c], julia_compat = "1.6", preferred_rust_version = v"1.95")
