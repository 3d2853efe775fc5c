#!/usr/bin/env bash
# Runs the tests of the modules that are its arguments, all of them even when some fail.
# GO is the go command, TIMEOUT the time that the tests of one package may take, RACE the
# flag of the race detector or nothing. Of the root module, RACED are the packages that are
# tested with it, but for the tests UNRACED of the proxy. PARALLEL is how many tests of test/e2e
# run at a time: by default two for each processor, because a test with a cluster waits for a part
# of its time. SKIP are tests of test/e2e that are left out. GOTESTSUM prints each test that takes
# a second or fails when it ends, and, after all modules, what took longest, each package, what
# failed and how many tests ran.
set -o pipefail

go=${GO:-go}
gotestsum=${GOTESTSUM:-gotestsum}
read -ra raced <<<"${RACED:-}"
read -ra race <<<"${RACE:-}"
parallel=${PARALLEL:-$(($(getconf _NPROCESSORS_ONLN) * 2))}
skip=${SKIP:-}
without=()

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

# make lint runs govet on all packages, so the tests do not run it again. NAME distinguishes the results.
run() {
	local name=$1
	shift
	"$gotestsum" --format testname --hide-summary skipped,failed --jsonfile "$results/$name.json" --raw-command -- \
		"$go" test -json -vet=off -timeout "${TIMEOUT:-100m}" "${without[@]}" "$@" |
		{ grep --line-buffered -vE '^(PASS .*\(0\.[0-9]+s\)|EMPTY .*)$' || true; } || touch "$results/failed"
}

# root tests the root module: first the packages with the race detector, whose tests watch the time, and
# then test/e2e beside all others. A test with a cluster leaves the processors idle for a part of its time,
# and a command waits at its end for its last test.
root() {
	local all detected e2e rest
	all=$("$go" list ./...) && e2e=$("$go" list ./test/e2e) || return 1
	if ((${#raced[@]} > 0)); then
		detected=$("$go" list "${raced[@]}") || return 1
		detected=$(grep -vxF "$e2e" <<<"$detected")
	fi
	rest=$(grep -vxF "$detected"$'\n'"$e2e" <<<"$all")

	if [ -n "$detected" ]; then
		echo "go test ${race[*]} ${raced[*]}"
		# Go's race detector needs cgo.
		CGO_ENABLED=$((${#race[@]} > 0)) run raced "${race[@]}" ${UNRACED:+-skip "$UNRACED"} $detected
		[ -z "${UNRACED:-}" ] || run unraced -run "$UNRACED" ./internal/proxy
	fi
	echo "go test $e2e, and of other packages"
	run e2e -parallel "$parallel" ${skip:+-skip "$skip"} "$e2e" &
	[ -z "$rest" ] || run rest -p 2 -parallel 2 $rest
	wait
}

for module in "$@"; do
	pushd "$module" >/dev/null || exit 1
	if [ "$module" = . ]; then
		root || exit 1
	elif ! tested=$("$go" list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./...); then
		touch "$results/failed"
	elif [ -n "$tested" ]; then
		echo "go test in $module"
		run "${module//\//-}" ./...
	fi
	popd >/dev/null || exit 1
done

echo "the slowest tests:"
cat "$results"/*.json | "$gotestsum" tool slowest --num 20 --threshold 10s

# The time of each package, in go test's own words, the names of what failed, and how many tests ran.
"$gotestsum" --format standard-quiet --hide-summary skipped,output --raw-command -- cat "$results"/*.json |
	grep -vE '^(\?|PASS$|FAIL$)' || true
[ ! -e "$results/failed" ]
