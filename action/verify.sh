#!/usr/bin/env bash
# Runs tenure verify on the fleet FLEET, and writes the reports into the folder OUT: verify.html,
# verify.sarif, verify.xml and main.json; and comment.md, if OUT has the main branch's main.json.
# PATHS, MAPS and ARGUMENTS have one value a line. The exit code is that of tenure verify.
set -euo pipefail

args=(verify --fleet "$FLEET" --programs "$RELEASES/$VERSION")
# each FLAG TEXT adds the flag, if it is not empty, and the value of each line of the text.
each() {
	local line
	while IFS= read -r line; do
		line=${line%$'\r'}
		[ -n "$line" ] || continue
		if [ -n "$1" ]; then args+=("$1"); fi
		args+=("$line")
	done <<<"$2"
}
each --path "$PATHS"
each --map "${MAPS:-}"
mkdir -p "$OUT"
for format in html sarif junit json; do
	case $format in
	junit) file=verify.xml ;;
	json) file=new.json ;;
	*) file=verify.$format ;;
	esac
	args+=(-o "$format=$OUT/$file")
done
if [ -f "$OUT/main.json" ]; then
	args+=(--compare "$OUT/main.json" -o "markdown=$OUT/comment.md")
fi
each "" "${ARGUMENTS:-}"
code=0
tenure "${args[@]}" || code=$?
# The next comparison is with this report, if there is one.
if [ -f "$OUT/new.json" ]; then mv "$OUT/new.json" "$OUT/main.json"; fi
exit "$code"
