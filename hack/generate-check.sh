#!/bin/sh
# Fails when `go generate` changes anything: then a generated file was edited
# by hand, or its input was changed without running `make generate`.
set -eu
cd "$(dirname "$0")/.."

# The state of every file that git knows or would add, by content.
state() {
	git ls-files -co --exclude-standard | sort -u | while IFS= read -r file; do
		if [ -f "$file" ] && [ ! -L "$file" ]; then
			printf '%s\n' "$file"
		fi
	done | git hash-object --stdin-paths
	git ls-files -co --exclude-standard | sort -u
}

before=$(state)
"${GO:-go}" generate ./...
after=$(state)
if [ "$before" != "$after" ]; then
	echo "✗ generated files are not up to date: run make generate and commit the result" >&2
	git status --short >&2
	exit 1
fi
