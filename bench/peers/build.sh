#!/bin/sh
# Builds the peer that walks memory over UCX as OUT.
#
#   bench/peers/build.sh OUT
set -eu
here=$(dirname "$0")
mkdir -p "$(dirname "$1")"
cc -std=c11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Werror "$here/ucx_walk.c" -lucp -lucs -o "$1"
