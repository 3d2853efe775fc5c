#!/usr/bin/env bash
# What the job tenure-verify of GitLab does around action/verify.sh. `report` fetches the report of
# the default branch into the folder OUT. `comment` writes OUT/comment.md as a note of the merge
# request, over the note of the run before, with the token TENURE_TOKEN, whose scope is api.
set -euo pipefail

project="$CI_API_V4_URL/projects/$CI_PROJECT_ID"
case $1 in
report)
	# Before the first run of the default branch there is none, and then no comment.
	curl --fail --silent --location --header "JOB-TOKEN: $CI_JOB_TOKEN" --output "$OUT/main.json" \
		"$project/jobs/artifacts/$CI_DEFAULT_BRANCH/raw/tenure-reports/main.json?job=tenure-verify" || rm -f "$OUT/main.json"
	;;
comment)
	if [ ! -f "$OUT/comment.md" ] || [ -z "${CI_MERGE_REQUEST_IID:-}" ]; then
		exit 0
	fi
	if [ -z "${TENURE_TOKEN:-}" ]; then
		echo "no comment: set the variable TENURE_TOKEN to a token with the scope api" >&2
		exit 0
	fi
	notes="$project/merge_requests/$CI_MERGE_REQUEST_IID/notes"
	# The first line of a comment names its writer; GitLab writes < as an escape.
	note=$(curl --fail --silent --show-error --header "PRIVATE-TOKEN: $TENURE_TOKEN" "$notes?per_page=100" |
		grep -oE '"id":[0-9]+,"type":[^,]*,"body":"[^"]{3,6}!-- tenure verify --' | head -n 1 | grep -oE '[0-9]+' | head -n 1 || true)
	method=POST
	if [ -n "$note" ]; then method=PUT notes="$notes/$note"; fi
	curl --fail --silent --show-error --request "$method" --header "PRIVATE-TOKEN: $TENURE_TOKEN" \
		--form "body=<$OUT/comment.md" --output /dev/null "$notes"
	;;
*)
	echo "✗ usage: gitlab.sh report|comment" >&2
	exit 3
	;;
esac
