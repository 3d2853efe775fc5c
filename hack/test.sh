#!/usr/bin/env bash
# Runs the tests of the modules that are its arguments, all of them even when some fail.
# GO is the go command, TIMEOUT the time that the tests of one package may take, RACE the
# flag of the race detector or nothing. Of the root module, RACED are the packages that are
# tested with it, but for the tests UNRACED of the proxy, and APART packages whose tests start
# many clusters. PARALLEL is how many of these tests run at a time: by default two for each
# processor, because a test with a cluster waits for a part of its time. SKIP are tests of
# test/e2e that are left out. GOTESTSUM prints each test that takes a second or fails when it ends, and,
# after all modules, what took longest, each package, what failed and how many tests ran.
set -o pipefail

go=${GO:-go}
gotestsum=${GOTESTSUM:-gotestsum}
read -ra raced <<<"${RACED:-}"
read -ra apart <<<"${APART:-}"
read -ra race <<<"${RACE:-}"
parallel=${PARALLEL:-$(($(getconf _NPROCESSORS_ONLN) * 2))}
skip=${SKIP:-}
without=()
failed=0
runs=0

# The garbage collector takes a third of the API server's time with 100, and a sixth with 200.
# Local clusters take less of the processors with 400, and more memory.
export GOGC=${GOGC:-400}

results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT

# A local cluster writes and deletes thousands of small files. In memory that takes a sixth less of
# the processors than on a disk. The go command itself, which keeps gigabytes, stays on the disk:
# the tests would follow its GOTMPDIR, so they do not get it.
memory=/dev/shm
available=$(awk '/^MemAvailable:/ { print int($2 / 1024 / 1024) }' /proc/meminfo 2>/dev/null)
if [ -z "${TMPDIR:-}" ] && [ "${available:-0}" -ge 12 ] && [ -w $memory ] && [ "$(df -k --output=avail $memory | tail -1)" -ge $((8 << 20)) ]; then
	TMPDIR=$(mktemp -d $memory/t.XXX) # short, for the paths of sockets
	trap 'rm -rf "$results" "$TMPDIR"' EXIT
	chmod 711 "$TMPDIR" # a test runs a part of itself as another user
	printf '#!/bin/sh\n' >"$TMPDIR/program" && chmod +x "$TMPDIR/program"
	if "$TMPDIR/program" 2>/dev/null; then # some mounts do not run programs
		export TMPDIR GOTMPDIR=${GOTMPDIR:-/tmp}
		without=(-exec "env -u GOTMPDIR")
	else
		rm -rf "$TMPDIR"
		unset TMPDIR
		trap 'rm -rf "$results"' EXIT
	fi
fi

# make lint runs govet on all packages, so the tests do not run it again.
run() {
	runs=$((runs + 1))
	"$gotestsum" --format testname --hide-summary skipped,failed --jsonfile "$results/$runs.json" --raw-command -- \
		"$go" test -json -vet=off -timeout "${TIMEOUT:-100m}" "${without[@]}" "$@" |
		{ grep --line-buffered -vE '^(PASS .*\(0\.[0-9]+s\)|EMPTY .*)$' || true; } || failed=1
}

# list prints the packages that patterns name, one in each line.
list() {
	(($# == 0)) || "$go" list "$@"
}

root() {
	local all detected heavy e2e
	all=$("$go" list ./...) && detected=$(list "${raced[@]}") && heavy=$(list "${apart[@]}") || return 1
	detected=$(grep -vxF "$heavy" <<<"$detected")
	if [ -n "$detected" ]; then
		echo "go test ${race[*]} ${raced[*]}"
		# Go's race detector needs cgo.
		CGO_ENABLED=$((${#race[@]} > 0)) run "${race[@]}" ${UNRACED:+-skip "$UNRACED"} $detected
		[ -z "${UNRACED:-}" ] || run -run "$UNRACED" ./internal/proxy
	fi
	echo "go test of other packages"
	run -parallel "$parallel" $(grep -vxF "$detected"$'\n'"$heavy" <<<"$all")
	# One package at a time: otherwise twice as many clusters run at once.
	if [ -n "$heavy" ]; then
		echo "go test ${apart[*]}"
		if [ -n "$skip" ] && e2e=$(grep '/test/e2e$' <<<"$heavy"); then
			run -parallel "$parallel" -skip "$skip" "$e2e"
			heavy=$(grep -v '/test/e2e$' <<<"$heavy")
		fi
		[ -z "$heavy" ] || run -p 1 -parallel "$parallel" $heavy
	fi
}

for module in "$@"; do
	pushd "$module" >/dev/null || exit 1
	if [ "$module" = . ]; then
		root || exit 1
	elif ! tested=$("$go" list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./...); then
		failed=1
	elif [ -n "$tested" ]; then
		echo "go test in $module"
		run ./...
	fi
	popd >/dev/null || exit 1
done

echo "the slowest tests:"
cat "$results"/*.json | "$gotestsum" tool slowest --num 20 --threshold 10s

# The time of each package, in go test's own words, the names of what failed, and how many tests ran.
"$gotestsum" --format standard-quiet --hide-summary skipped,output --raw-command -- cat "$results"/*.json |
	grep -vE '^(\?|PASS$|FAIL$)' || true
exit "$failed"
