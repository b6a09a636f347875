#!/usr/bin/env bash
# Runs a command with the UCX of .tools, if it is there and DIPC_UCX_LIBRARY names no other.
# Debian's UCX 1.13 can end a process when connections come and go (docs/transports.md, "ucx").
#
#   tools/with-newer-ucx.sh COMMAND [ARGUMENT]...
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
newer=$(find "$root/.tools/venv/lib" -path '*/libucx/lib/libucp.so.0' 2>/dev/null | head -n 1)
[ -z "$newer" ] || export DIPC_UCX_LIBRARY=${DIPC_UCX_LIBRARY:-$newer}
exec "$@"
