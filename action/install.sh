#!/usr/bin/env bash
# Fetches the program tenure of the release VERSION from RELEASES/VERSION, compares it with the
# checksums of the release, and unpacks it into the folder BIN.
set -euo pipefail

os=$(uname -s | tr '[:upper:]' '[:lower:]')
case $(uname -m) in
x86_64 | amd64) arch=amd64 ;;
aarch64 | arm64) arch=arm64 ;;
*)
	echo "✗ there is no release of tenure for $(uname -m)" >&2
	exit 3
	;;
esac
archive="tenure_${VERSION#v}_${os}_${arch}.tar.gz"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
for file in "$archive" SHA256SUMS; do
	if ! curl --fail --silent --show-error --location --retry 3 --output "$file" "$RELEASES/$VERSION/$file"; then
		echo "✗ cannot fetch $file of the release $VERSION from $RELEASES" >&2
		exit 3
	fi
done
sum=sha256sum
command -v sha256sum >/dev/null || sum="shasum -a 256"
# The line must be there: no line at all is no error to sha256sum on some systems.
if ! grep "  $archive\$" SHA256SUMS >sum || ! $sum --check --status sum; then
	echo "✗ $archive is not what the checksums of the release say" >&2
	exit 3
fi
mkdir -p "$BIN"
tar -xzf "$archive" -C "$BIN" tenure
