#!/bin/sh
# Prints the Julia to use: what JULIA names, the one that tools/setup.sh made ready, or julia. Fails,
# and says why, where there is none that works.
root=$(cd "$(dirname "$0")/../.." && pwd)
for julia in "$JULIA" "$root/.tools/bin/julia" "$(command -v julia)"; do
  if [ -n "$julia" ] && [ -x "$julia" ] &&
    # An exception is what breaks where libunwind is newer than Julia (tools/setup.sh).
    [ "$("$julia" --startup-file=no -e '
      f(x) = x > 0 ? error("yes") : x
      try f(1) catch e print(e.msg) end' 2>/dev/null)" = yes ]; then
    echo "$julia"
    exit 0
  fi
done
if command -v julia >/dev/null; then
  echo "julia: $(command -v julia) does not work: an exception ends it (is libunwind newer than Julia?)" >&2
fi
echo "julia: there is no Julia here that works; tools/setup.sh test puts one into .tools" >&2
exit 1
