#!/usr/bin/env bash
# Builds what a cluster needs from the Go module proxy, because this machine reaches no registry of images and no downloads: build.sh DIR.
# What was built stays in DIR/bin and DIR/images, with a mark in DIR/built for each version, and is not built again.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
dir=$1
source "$here/versions.sh"
export CGO_ENABLED=0
jobs=${JOBS:-2}
mkdir -p "$dir"/{bin,images,built,work}

# once NAME-VERSION COMMAND...: does it unless it was done.
once() {
	local mark=$dir/built/$1
	shift
	[ -e "$mark" ] && return
	local began=$SECONDS
	"$@"
	touch "$mark"
	echo "built $(basename "$mark") in $((SECONDS - began)) s"
}

# kubernetes builds its commands. k8s.io/kubernetes replaces its staging modules by directories that are not in the module, so a module of
# our own requires the published ones.
kubernetes() {
	local modules=v0.${KUBERNETES#v1.} work=$dir/work/kubernetes version=k8s.io/component-base/version
	mkdir -p "$work"
	cd "$work"
	rm -f go.mod go.sum
	go mod download "k8s.io/kubernetes@$KUBERNETES"
	local source
	source=$(go env GOMODCACHE)/k8s.io/kubernetes@$KUBERNETES
	{
		printf 'module kubernetes.build\n\n%s\n\nrequire k8s.io/kubernetes %s\nrequire (\n' "$(grep '^go ' "$source/go.mod")" "$KUBERNETES"
		awk '/^require \(/,/^\)/' "$source/go.mod" | grep -vE '^(require|\))' | sed -E "s#^([[:space:]]+k8s.io/[a-z-]+) v0[.]0[.]0\$#\1 $modules#"
		echo ')'
	} >go.mod
	local minor=${KUBERNETES#v1.}
	for command in kube-apiserver kubelet kubectl kube-controller-manager kube-scheduler kube-proxy; do
		GOFLAGS=-mod=mod go build -p "$jobs" -trimpath -o "$dir/bin/$command" \
			-ldflags "-s -w -X $version.gitVersion=$KUBERNETES -X $version.gitMajor=1 -X $version.gitMinor=${minor%%.*} -X $version.gitTreeState=clean" "k8s.io/kubernetes/cmd/$command"
	done
}

# module NAME MODULE VERSION: makes a module that requires another one, for a command that is built in it.
module() {
	mkdir -p "$dir/work/$1"
	cd "$dir/work/$1"
	rm -f go.sum
	printf 'module %s.build\n\ngo 1.26.0\n\nrequire %s %s\n' "$1" "$2" "$3" >go.mod
}

# program NAME PACKAGE MODULE VERSION
program() {
	module "$1" "$3" "$4"
	printf '//go:build tools\n\npackage tools\n\nimport _ "%s"\n' "$2" >tools.go
	go mod tidy -e >/dev/null 2>&1 || true # what only tests of others need may be missing
	go build -p "$jobs" -trimpath -ldflags '-s -w' -o "$dir/bin/$1" "$2"
}

# image NAME: builds the image of a command, with the command of this repository that builds images.
image() {
	go -C "$here/../../deploy/images" run . -C "$dir/work/$1" --platform "linux/$(go env GOARCH)" --output "$dir/work/$1-image" --tar --name "docker.io/local/$1" --tag 1 . >/dev/null
	cp "$dir/work/$1-image/tar/"*.tar "$dir/images/$1.tar"
}

pause() {
	mkdir -p "$dir/work/pause"
	cd "$dir/work/pause"
	printf 'module pause.build\n\ngo 1.26.0\n' >go.mod
	cp "$here/pause.go.txt" main.go
	image pause
}

coredns() {
	module coredns github.com/coredns/coredns "$COREDNS"
	cp "$here/coredns.go.txt" main.go
	go mod tidy -e >/dev/null 2>&1 || true
	image coredns
}

once "kubernetes-$KUBERNETES" kubernetes
once "helm-$HELM" program helm helm.sh/helm/v4/cmd/helm helm.sh/helm/v4 "$HELM"
once "helm3-$HELM3" program helm3 helm.sh/helm/v3/cmd/helm helm.sh/helm/v3 "$HELM3"
once "nats-server-$NATS" program nats-server github.com/nats-io/nats-server/v2 github.com/nats-io/nats-server/v2 "$NATS"
once pause-1 pause
once "coredns-$COREDNS" coredns
