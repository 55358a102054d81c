#!/usr/bin/env bash
# Installs the chart on a real Kubernetes, changes everything under load, and prints of each step whether it went well. `make cluster` runs it.
# What was built is kept in $CLUSTER_CACHE. Everything else is in $CLUSTER_RUN, and gone at the end.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
repository=$(readlink -f "$here/../..")
dir=${CLUSTER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rondo-cluster}
run=${CLUSTER_RUN:-/var/tmp/rondo-cluster}
chart=$repository/deploy/helm/rondo
source "$here/versions.sh"
source "$here/nodes.sh"
source "$here/steps.sh"

need() {
	[ "$(id -u)" = 0 ] || { echo "make cluster: only root may make the namespaces of nodes" >&2; exit 1; }
	local missing=() item
	for item in containerd:containerd runc:runc etcd:etcd-server /usr/lib/cni/bridge:containernetworking-plugins iptables:iptables ip:iproute2 conntrack:conntrack ipset:ipset \
		openssl:openssl curl:curl nsenter:util-linux; do
		command -v "${item%:*}" >/dev/null || missing+=("${item#*:}")
	done
	compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || missing+=(postgresql)
	[ ${#missing[@]} -gt 0 ] || return 0
	command -v apt-get >/dev/null || { echo "make cluster: install ${missing[*]}" >&2; exit 1; }
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# product builds what is installed, and what it is tried with.
product() {
	mkdir -p "$run"/{images,bin}
	(
		cd "$repository"
		make images IMAGEFLAGS="--platform linux/$(go env GOARCH) --output $run/layout --tar --name ghcr.io/me/rondo --tag v1"
		export CGO_ENABLED=0 # as the images are built, so that nothing is compiled twice
		go build -trimpath -o "$run/bin/load" ./integration/cluster/load
		go build -trimpath -o "$run/bin/rondo" ./cmd/rondo
	)
	cp "$run"/layout/tar/*.tar "$run/images/"
}

mkdir -p "$dir"
exec 9>"$dir/lock"
flock -n 9 || { echo "make cluster: another one is running on this machine" >&2; exit 1; }
need
down # what a run has left that did not come to its end
mkdir -p "$run"
trap 'down' EXIT
trap 'exit 1' INT TERM

echo "Kubernetes $KUBERNETES, Helm $HELM and $HELM3, nats-server $NATS, $(containerd --version | cut -d' ' -f3), $(runc --version | head -1), $(ls /usr/lib/postgresql | tail -1 | sed 's/^/PostgreSQL /'); $(nproc) processors"
step 'build Kubernetes and the rest, unless they are there' "$here/build.sh" "$dir"
step 'build images, the command line and the load' product
[ $failed = 0 ] || finish
namespaces 1
namespaces 2
step 'start two nodes, three NATS servers and PostgreSQL' up
[ $failed = 0 ] || finish
minimal
production
finish
