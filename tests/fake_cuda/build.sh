#!/bin/sh
# Builds the fake CUDA driver as FOLDER/libcuda.so.1, and libnvidia-ml.so.1 beside it, which UCX's
# CUDA modules load.
#
#   tests/fake_cuda/build.sh FOLDER [FLAG...]
#
# FLAG goes to the compiler: -DcuMemMap=hidden makes a driver without that function.
set -eu
here=$(dirname "$0")
folder=$1
shift
mkdir -p "$folder"
# A temporary name until the file is complete, because parallel tests build the same file.
cc -std=c11 -O1 -g -fPIC -shared -pthread -fvisibility=hidden -Wall -Wextra -Werror "$@" \
  "$here"/main.c "$here"/memory.c "$here"/ipc.c "$here"/pool.c "$here"/stream.c "$here"/kernel.c \
  "$here"/ucx.c -Wl,-soname,libcuda.so.1 -o "$folder/libcuda.so.1.$$"
mv "$folder/libcuda.so.1.$$" "$folder/libcuda.so.1"
cc -std=c11 -O1 -fPIC -shared -fvisibility=hidden -Wall -Wextra -Werror "$here"/nvml.c \
  -Wl,-soname,libnvidia-ml.so.1 -o "$folder/libnvidia-ml.so.1.$$"
mv "$folder/libnvidia-ml.so.1.$$" "$folder/libnvidia-ml.so.1"
