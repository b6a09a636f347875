#!/bin/sh
# Builds the peer as OUT with UCX's headers and libraries, Debian's or those of PREFIX.
#
#   tests/ucx_peer/build.sh OUT [PREFIX]
#
# At run time the libraries are found as usual (LD_LIBRARY_PATH names others).
set -eu
here=$(dirname "$0")
out=$1
flags=
if [ $# -gt 1 ]; then
  flags="-isystem $2/include -L$2/lib"
fi
# shellcheck disable=SC2086 # flags are several words
cc -std=c11 -D_GNU_SOURCE -O1 -g -Wall -Wextra -Werror $flags \
  "$here"/peer.c "$here"/util.c "$here"/ipc.c "$here"/ucx.c "$here"/serve.c "$here"/get.c "$here"/pull.c \
  -lucp -lucs -o "$out"
