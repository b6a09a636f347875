#!/usr/bin/env bash
# Four workers of dipc-sql, each in a network namespace of its own, that shuffle over TLS; one of
# them dies.
#
#   examples/cluster/query.sh [SCALE]
#
# 1. A query of TPC-H on the four gives what one process gives.
# 2. A worker is killed in the middle of a query, which fails and names it.
# 3. The query on the three that are left gives what one process gives.
#
# SCALE is TPC-H's, 0.1 by default. dipc-sql and openssl must be in the PATH. The exit status is not
# 0 where a step does not hold. Nothing is left behind.
set -euo pipefail

scale=${1:-0.1} nodes=4 patience=600
here=$(cd "$(dirname "$0")" && pwd)

say() { printf 'query: %s\n' "$*"; }
fail() { printf 'query: %s\n' "$*" >&2; exit 1; }

# Writes ca.pem, the authority that all trust, and for each node N.pem and N.key.
certify() {
  local new=(openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes)
  "${new[@]}" -x509 -days 1 -subj "/CN=authority of the cluster" -keyout ca.key -out ca.pem
  for node in $(seq "$nodes"); do
    "${new[@]}" -subj "/CN=node $node" -keyout "$node.key" -out "$node.csr"
    # A certificate is for an address, and a client goes to the worker at that address alone.
    openssl x509 -req -days 1 -in "$node.csr" -CA ca.pem -CAkey ca.key -CAcreateserial \
      -extfile <(printf 'subjectAltName=IP:10.77.0.%d\n' $((10 + node))) -out "$node.pem"
  done
}

# Outside the cluster: makes it, and runs this script in it.
if [ -z "${QUERY_FOLDER:-}" ]; then
  for tool in dipc-sql openssl; do
    command -v "$tool" >/dev/null || fail "$tool is not in the PATH"
  done
  QUERY_FOLDER=$(mktemp -d)
  export QUERY_FOLDER
  trap 'rm -rf "$QUERY_FOLDER"' EXIT
  (cd "$QUERY_FOLDER" && certify >openssl.log 2>&1) ||
    fail "openssl makes no certificates: $(cat "$QUERY_FOLDER/openssl.log")"
  # Plans come at ADDRESS:PORT. Partitions travel over TLS.
  worker='exec dipc-sql worker --listen "$ADDRESS:$PORT" --dipc "tls://$ADDRESS:0" \
    --tls-cert "$QUERY_FOLDER/$NODE.pem" --tls-key "$QUERY_FOLDER/$NODE.key" \
    --tls-ca "$QUERY_FOLDER/ca.pem"'
  "$here/cluster.sh" -n "$nodes" "$worker" "$here/query.sh" "$scale"
  exit
fi

# TPC-H's query 3: the orders not yet shipped that are worth most.
shipping="SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate
  FROM customer, orders, lineitem
  WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
    AND o_orderdate < date '1995-03-15' AND l_shipdate > date '1995-03-15'
  GROUP BY l_orderkey, o_orderdate ORDER BY revenue DESC, o_orderdate, l_orderkey LIMIT 10"
# A query that lasts: each row of a table with each of the same table.
lasting="SELECT a.l_shipmode, count(*) AS pairs FROM lineitem a, lineitem b
  WHERE a.l_extendedprice * b.l_quantity < a.l_quantity * b.l_extendedprice
  GROUP BY a.l_shipmode ORDER BY a.l_shipmode"

# Runs queries, on these workers: each ADDRESS:PORT.
alone() {
  timeout "$patience" dipc-sql query --tpch "$scale" --tpch-dir "$QUERY_FOLDER/tpch" \
    --partitions 4 --scan-bytes 100000 "${@}"
}
on() {
  local workers=$1
  shift
  alone --workers "http://${workers// /,http://}" --way tls --tls-ca "$QUERY_FOLDER/ca.pem" "$@"
}
same() { diff <(printf '%s\n' "$expected") - || fail "one process gives another result"; }
# The processor time of a process so far, in ticks of a hundredth of a second.
ticks() { awk '{ print $14 + $15 }' "/proc/$1/stat"; }

read -ra addresses <<<"$WORKERS"
read -ra pids <<<"$WORKER_PIDS"

say "query 3 of TPC-H at scale $scale, in one process:"
expected=$(alone "$shipping")
printf '%s\n' "$expected"

say "the same on $nodes workers, $WORKERS:"
on "$WORKERS" "$shipping" | same
stages=$(on "$WORKERS" --explain "$shipping" | grep '^stage ')
printf '%s\n' "$stages"
[[ $stages == *"; tls "* ]] || fail "nothing was sent over TLS"
say "the same result"

say "a query that lasts, on the same workers:"
begun=()
for pid in "${pids[@]}"; do begun+=("$(ticks "$pid")"); done
on "$WORKERS" "$lasting" >"$QUERY_FOLDER/lasting" 2>&1 &
query=$!
# A worker that has computed for a second is in the middle of its part: small tables do not have a
# part for each.
lost=
until [ -n "$lost" ]; do
  kill -0 "$query" 2>/dev/null ||
    fail "it ended before a worker was killed: $(cat "$QUERY_FOLDER/lasting"). Give a larger SCALE."
  sleep 0.05
  for node in "${!pids[@]}"; do
    if [ $(($(ticks "${pids[node]}") - begun[node])) -ge 100 ]; then lost=$node; fi
  done
done
url=http://${addresses[lost]}
say "killing the worker $url"
kill -KILL "${pids[lost]}"
killed=$SECONDS
if wait "$query"; then fail "it succeeded all the same"; fi
say "it failed $((SECONDS - killed)) s later:"
cat "$QUERY_FOLDER/lasting"
grep -qF "$url" "$QUERY_FOLDER/lasting" || fail "its error does not name $url"
say "the error names the worker"

unset "addresses[lost]"
left="${addresses[*]}"
say "query 3 on the workers that are left, $left:"
on "$left" "$shipping" | same
say "the same result"
