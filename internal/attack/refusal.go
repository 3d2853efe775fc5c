package attack

import (
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
)

// rbac is the control that speaks when a right is missing.
const rbac = "RBAC"

// The words in which the API server and Flux refuse. They are matched in
// messages because that is where Flux, which passes on what it was told, has
// them.
var refusals = []struct {
	words   *regexp.Regexp
	control func(match []string) string
}{
	{regexp.MustCompile(`ValidatingAdmissionPolicy '([^']+)'`), func(m []string) string { return "policy " + m[1] }},
	{regexp.MustCompile(`admission webhook "([^"]+)" denied`), func(m []string) string { return "webhook " + m[1] }},
	{regexp.MustCompile(`violates PodSecurity "([^"]+)"`), func(m []string) string { return "Pod Security " + m[1] }},
	{regexp.MustCompile(`exceeded quota: ([^,]+)`), func(m []string) string { return "quota " + m[1] }},
	{regexp.MustCompile(`attempting to grant RBAC permissions not currently held`), constant("RBAC (escalation)")},
	{regexp.MustCompile(`cross-namespace reference`), constant("flag --no-cross-namespace-refs")},
	{regexp.MustCompile(`cannot [a-z]+ resource|is forbidden: User|cannot (?:get|list|create|patch|update|delete|impersonate)`), constant(rbac)},
}

func constant(s string) func([]string) string { return func([]string) string { return s } }

// controlOf names the control that speaks in a message.
func controlOf(message string) (string, bool) {
	for _, r := range refusals {
		if m := r.words.FindStringSubmatch(message); m != nil {
			return r.control(m), true
		}
	}
	return "", false
}

// judge says what the answer to a request means: for an attack, that it was
// accepted means that it got through.
func judge(err error, evidence string) Finding {
	if err == nil {
		return through(evidence)
	}
	message := firstLine(err.Error())
	if control, ok := controlOf(message); ok && (apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)) {
		return stopped(control, message)
	}
	// A kind that the cluster does not have is a door that is not there. That a
	// tenant cannot bring the kind along is an attack of its own.
	if meta.IsNoMatchError(err) {
		return stopped("not installed", message)
	}
	if apierrors.IsNotFound(err) {
		return unproven("what the attack needs is not there: " + message)
	}
	return unproven("the answer is neither yes nor a refusal: " + message)
}

// maxMessage bounds what is quoted from a cluster.
const maxMessage = 400

func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	if len(s) > maxMessage {
		s = s[:maxMessage] + "…"
	}
	return s
}
