#!/bin/sh
# Checks that the programs a build needs are there, and says what to do when
# one is not.
set -eu
cd "$(dirname "$0")/.."

fail() {
	echo "✗ $1" >&2
	exit 1
}

go=${GO:-go}
want=$(sed -n 's/^go \([0-9]*\.[0-9]*\).*/\1/p' go.mod)
command -v "$go" >/dev/null 2>&1 ||
	fail "cannot find Go: install Go $want or newer from https://go.dev/dl and put its bin folder in PATH"
command -v git >/dev/null 2>&1 ||
	fail "cannot find git: install it with your system's package manager"
# In this folder the go command reads go.mod: it refuses when it is too old and
# may not fetch a newer one of itself.
if ! version=$("$go" env GOVERSION 2>&1); then
	fail "cannot use $(command -v "$go"): $want or newer is needed, from https://go.dev/dl
  it said: $version"
fi
# Before 1.21 it does not look at the version in go.mod.
case $version in
go1.[0-9] | go1.[0-9].* | go1.1[0-9]* | go1.20* | go1.2[0-5] | go1.2[0-5].*)
	fail "cannot use $(command -v "$go"): it is $version, $want or newer is needed, from https://go.dev/dl"
	;;
esac
