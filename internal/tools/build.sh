#!/usr/bin/env bash
# build.sh OUTPUT PACKAGE builds a program, and says every 15 seconds how far it is: a first build compiles for minutes, and `go build` prints nothing meanwhile.
# GO is the go command, EVERY the seconds between two lines.
set -euo pipefail
output=$1 package=$2 every=${EVERY:-15}

log=$(mktemp)
total=$(mktemp)
build=
trap '[ -z "$build" ] || kill "$build" 2>/dev/null || true; rm -f "$log" "$total"' EXIT

if [ -e "$output" ]; then
	echo "building $output"
else
	echo "building $output: the first build downloads and compiles everything, which takes some minutes"
fi
"${GO:-go}" build -v -o "$output" "$package" >"$log" 2>&1 &
build=$!
{ "${GO:-go}" list -deps "$package" 2>/dev/null | grep -c . >"$total" || true; } & # ready when the modules are downloaded

count() { grep -c "$@" "$log" || true; }
# With -v, a line without a space is the path of a package that is being compiled.
next=$every
while kill -0 "$build" 2>/dev/null; do
	if [ "$SECONDS" -ge "$next" ]; then
		next=$((SECONDS + every))
		all=$(cat "$total")
		last=$(grep -v ' ' "$log" | tail -n 1 || true)
		echo "  $SECONDS s: $(count '^go: downloading ') modules downloaded, $(count -v ' ')${all:+ of $all} packages compiled${last:+, the last one $last}"
	fi
	sleep 0.1
done
status=0
wait "$build" || status=$?
build=
[ "$status" = 0 ] || grep ' ' "$log" | grep -v '^go: downloading ' >&2 || true
exit "$status"
