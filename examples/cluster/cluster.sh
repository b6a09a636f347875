#!/usr/bin/env bash
# Runs a command beside a cluster on this one machine. Each worker has a network namespace of its
# own, with a veth to a bridge, so that it reaches the others through their addresses alone, as
# separate machines do.
#
#   examples/cluster/cluster.sh [-n NODES] [-p PORT] WORKER COMMAND [ARGUMENT...]
#
# WORKER is one word, which bash runs on each node with NODE (1, 2, ...), ADDRESS and PORT in its
# environment: it is to listen at ADDRESS:PORT, and to end at SIGTERM. The address of node N is
# 10.77.0.(10 + N). NODES is 4 by default, and PORT 7400. Once all of them listen, COMMAND runs on
# the bridge, with these in its environment, in the order of the nodes and separated by spaces:
# WORKERS, each ADDRESS:PORT, and WORKER_PIDS, the process of each worker, which COMMAND may signal.
# The exit status is that of COMMAND.
#
# When COMMAND ends, or is killed, the workers get SIGTERM from the kernel, which drops the
# namespaces with the last of them. Root is not needed where the kernel lets users make namespaces.
set -euo pipefail

nodes=4 port=7400 subnet=10.77.0 patience=30
here=$(cd "$(dirname "$0")" && pwd)

fail() { printf 'cluster: %s\n' "$*" >&2; exit 1; }
usage() { printf 'usage: cluster.sh [-n NODES] [-p PORT] WORKER COMMAND [ARGUMENT...]\n' >&2; exit 2; }

while getopts n:p: option; do
  case $option in
    n) nodes=$OPTARG ;;
    p) port=$OPTARG ;;
    *) usage ;;
  esac
done
[[ $nodes =~ ^[0-9]+$ && $nodes -ge 1 && $nodes -le 200 ]] || fail "-n is $nodes: give a number from 1 to 200"
[[ $port =~ ^[0-9]+$ && $port -ge 1 && $port -le 65535 ]] || fail "-p is $port: give a number from 1 to 65535"
[ $# -ge $((OPTIND + 1)) ] || usage

if [ -z "${CLUSTER_IS_INSIDE:-}" ]; then
  for tool in ip unshare setpriv; do
    command -v "$tool" >/dev/null || fail "$tool is not here: apt-get install iproute2 util-linux"
  done
  apart=(unshare --net)
  if [ "$(id -u)" -ne 0 ]; then apart+=(--user --map-root-user); fi
  why=$("${apart[@]}" true 2>&1) || fail "the kernel makes no namespaces for this user: $why. Run it as root."
  CLUSTER_IS_INSIDE=1 exec "${apart[@]}" "$here/cluster.sh" "$@"
fi
unset CLUSTER_IS_INSIDE
shift $((OPTIND - 1))
worker=$1
shift

address() { printf '%s.%d' "$subnet" $((10 + $1)); }
network() { readlink "/proc/$1/ns/net"; }

ip link set lo up
ip link add hub type bridge
ip address add "$subnet.1/24" dev hub
ip link set hub up

# A worker begins once its end of the veth is there.
begin='until ip link show eth0 >/dev/null 2>&1; do sleep 0.05; done
ip address add "$ADDRESS/24" dev eth0
ip link set lo up
ip link set eth0 up
exec bash -c "$1"'

workers=() addresses=()
for node in $(seq "$nodes"); do
  NODE=$node ADDRESS=$(address "$node") PORT=$port \
    setpriv --pdeathsig TERM unshare --net bash -euc "$begin" worker "$worker" \
    </dev/null > >(sed -u "s/^/node $node: /" >&2) 2>&1 &
  workers+=($!)
  addresses+=("$(address "$node"):$port")
  until [ "$(network $!)" != "$(network self)" ]; do sleep 0.05; done
  ip link add "node$node" master hub type veth peer name eth0 netns $!
  ip link set "node$node" up
done

for node in $(seq "$nodes"); do
  ends=$((SECONDS + patience))
  until (: <>"/dev/tcp/$(address "$node")/$port") 2>/dev/null; do
    kill -0 "${workers[node - 1]}" 2>/dev/null || fail "the worker of node $node ended before it listened"
    [ $SECONDS -lt $ends ] || fail "node $node does not listen at ${addresses[node - 1]} after $patience seconds"
    sleep 0.1
  done
done

# In this process, the workers' parent.
WORKERS="${addresses[*]}" WORKER_PIDS="${workers[*]}" exec "$@"
