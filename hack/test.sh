#!/usr/bin/env bash
# Runs the tests of the modules that are its arguments, all of them even when some fail.
# GO is the go command, TIMEOUT the time that the tests of one package may take, RACE the
# flag of the race detector or nothing. UNRACED are packages of the root module that are
# tested without it, PARALLEL how many of their tests run at a time: by default one more than
# there are processors, because a test with a cluster waits for a part of its time.
set -o pipefail

go=${GO:-go}
read -ra unraced <<<"${UNRACED:-}"
read -ra race <<<"${RACE:-}"
parallel=${PARALLEL:-$(($(getconf _NPROCESSORS_ONLN) + 1))}
failed=0

# The garbage collector takes a third of the API server's time with 100, and a sixth with 200.
# Local clusters take less of the processors with 400, and more memory.
export GOGC=${GOGC:-400}

# make lint runs govet on all packages, so the tests do not run it again.
run() {
	"$go" test -vet=off -timeout "${TIMEOUT:-55m}" "$@" || failed=1
}

for module in "$@"; do
	echo "go test in $module"
	packages=(./...)
	if [ "$module" = . ] && ((${#unraced[@]} > 0)); then
		apart=$("$go" list "${unraced[@]}") || exit 1
		all=$("$go" list ./...) || exit 1
		read -rd '' -a packages < <(grep -vxF "$apart" <<<"$all")
	fi
	pushd "$module" >/dev/null || exit 1
	# The tools of hack/ start no goroutines, and their dependencies take long to compile twice.
	case "$module" in
	hack/*) run "${packages[@]}" ;;
	*) run "${race[@]}" "${packages[@]}" ;;
	esac
	popd >/dev/null || exit 1
done

if ((${#unraced[@]} > 0)); then
	echo "go test in ${unraced[*]}"
	# One package at a time: otherwise twice as many clusters run at once.
	run -p 1 -parallel "$parallel" "${unraced[@]}"
fi
exit "$failed"
