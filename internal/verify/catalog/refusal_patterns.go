package catalog

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
)

// rbac is the control that refuses a request if a right is missing.
const rbac = "RBAC"

// policyControl is the prefix of the names of ValidatingAdmissionPolicies and MutatingAdmissionPolicies as controls.
const policyControl = "policy "

// quotaControl is the prefix of the names of quotas as controls.
const quotaControl = "quota "

// kyvernoPolicy is the prefix of the names of Kyverno's policies as controls.
const kyvernoPolicy = "Kyverno policy "

// kyvernoRefusal matches a refusal by Kyverno, which has several lines, and the first policy in it: of the
// kinds ClusterPolicy and Policy, or of the kinds with expressions.
var kyvernoRefusal = regexp.MustCompile(`admission webhook "[^"]*\.kyverno\.svc[^"]*" denied the request:\s+` +
	`(?:resource \S+ was blocked due to the following policies\s+(\S+):\s|Policy (\S+) (?:failed|error):)`)

// unreachableRegistry matches the reason of a refusal by Kyverno that says nothing about the image: Kyverno
// requests signatures from the image's registry, and the local cluster has no network.
var unreachableRegistry = regexp.MustCompile(`failed to verify image|is not mapped \(there is no network`)

// proxyRefusal matches the messages of Go and git if nothing listens at a proxy, on a cluster and in the
// network of the local cluster.
var proxyRefusal = regexp.MustCompile(`nothing listens at the proxy \S+, which HTTPS?_PROXY names|proxyconnect tcp: dial tcp|from proxy after CONNECT`)

// refusals are patterns of the refusals of the API server and of Flux. They match messages and not error
// codes, because Flux passes on the API server's refusals as text.
var refusals = []struct {
	words   *regexp.Regexp
	control func(match []string) string
}{
	{regexp.MustCompile(`ValidatingAdmissionPolicy '([^']+)'`), func(m []string) string { return policyControl + m[1] }},
	// A MutatingAdmissionPolicy whose expression fails refuses the object.
	{regexp.MustCompile(`\bpolicy '([^']+)' with binding '[^']*' denied request`), func(m []string) string { return policyControl + m[1] }},
	{kyvernoRefusal, func(m []string) string { return kyvernoPolicy + m[1] + m[2] }},
	{regexp.MustCompile(`admission webhook "([^"]+)" denied`), func(m []string) string { return "webhook " + m[1] }},
	{regexp.MustCompile(`violates PodSecurity "([^"]+)"`), func(m []string) string { return "Pod Security " + m[1] }},
	{regexp.MustCompile(`exceeded quota: ([^,]+)`), func(m []string) string { return quotaControl + m[1] }},
	{regexp.MustCompile(`attempting to grant RBAC permissions not currently held`), constant("RBAC (escalation)")},
	{regexp.MustCompile(`cross-namespace reference`), constant("flag --no-cross-namespace-refs")},
	// kustomize reads only the unpacked artifact, and clones remote bases into folders with this name
	// beside it.
	{regexp.MustCompile(`fs-security-constraint [a-z]+ \S*/kustomize-\d+`), constant("flag --no-remote-bases")},
	{proxyRefusal, constant(noProxyThere)},
	// kustomize writes this about a file that a kustomization.yaml names by its address. Only the artifact proxy answers
	// with this code: a server that refuses lists with 403 may still serve what they would name.
	{regexp.MustCompile(`HTTP Error: status code 421 `), constant(artifactProxy)},
	{regexp.MustCompile(`fs-security-constraint `), constant("paths kept within the artifact")},
	{regexp.MustCompile(`cycle detected: candidate root`), constant("detection of cycles")},
	{regexp.MustCompile(`can't be accessed due to .*\bACL labels\b`), constant("spec.accessFrom of the object")},
	{regexp.MustCompile(`cannot [a-z]+ resource|is forbidden: User`), constant(rbac)},
}

func constant(s string) func([]string) string { return func([]string) string { return s } }

// controlOf returns the name of the control that wrote a message, and whether the control is known.
func controlOf(message string) (string, bool) {
	for _, r := range refusals {
		if m := r.words.FindStringSubmatch(message); m != nil {
			return r.control(m), true
		}
	}
	return "", false
}

// These replace the control of an attack without a target.
const (
	// notInstalled means that the cluster does not serve a kind, or that the fleet lacks
	// a part of Tenure.
	notInstalled = "not installed"
	// noShards means that the fleet has no shards.
	noShards = "no shards"
	// noGuardrails means that the platform has applied no limiting object to the namespace.
	noGuardrails = "nothing of the platform's"
	// noCapsuleRules means that no rules of a Capsule Tenant are in force in the namespace.
	noCapsuleRules = "no rules of a Capsule Tenant"
	// noSync, noPrivileged, noOwner and noReconciler mean that the tenant's namespaces hold no such object.
	noSync       = "no sync in the tenant's namespaces"
	noPrivileged = "no privileged account in the tenant's namespaces"
	noOwner      = "no owner's account in the tenant's namespace"
	noReconciler = "no account that Flux applies as in the tenant's namespaces"
)

// incomplete reports whether a control proves nothing about a tenant if objects of the fleet are missing:
// RBAC, because roles and bindings may be among the missing objects, or the absence of the attack's target.
func incomplete(control string) bool {
	return strings.Contains(control, rbac) || slices.Contains([]string{noGuardrails, noSync, noPrivileged, noOwner, noReconciler}, control)
}

// absent reports whether a control only says that the target of the attack does not exist, which proves
// nothing.
func absent(control string) bool {
	return slices.Contains([]string{notInstalled, noShards, noGuardrails, noCapsuleRules}, control)
}

// judge returns the finding for the answer to a request. An accepted request got through.
func judge(err error, evidence string) Finding {
	if err == nil {
		return gotThrough(evidence)
	}
	if errors.Is(err, errByChange) {
		f := gotThrough(evidence + ", by a change of an object that it may create")
		f.InFull = true
		return f
	}
	var marked *markedError
	if errors.As(err, &marked) {
		f := gotThrough(evidence + ", with " + marked.Error())
		f.InFull = true
		return f
	}
	var refused *policyRefusal
	if errors.As(err, &refused) && refused.untried != "" {
		f := judge(refused.error, evidence)
		if f.Outcome == Stopped {
			f = notProven(refused.untried + ": " + f.Message)
			f.InFull = true
		}
		return f
	}
	var held *heldError
	if errors.As(err, &held) {
		return gotThrough("it could " + held.what)
	}
	message := firstLine(err.Error())
	var altered *alteredError
	if errors.As(err, &altered) {
		return stopped(altered.control(), message)
	}
	var controller *controllerError
	if errors.As(err, &controller) {
		return notProven(fmt.Sprintf("the account %s of Kubernetes lacks a right here, which says nothing about the tenant: %s", controller.account, message))
	}
	var name *invalidNameError
	if errors.As(err, &name) {
		return stopped(nameCheck, message)
	}
	var absent *absentError
	if errors.As(err, &absent) {
		return stopped(notInstalled, message)
	}
	control, known := controlOf(message)
	var status apierrors.APIStatus
	switch {
	case !known:
	case strings.HasPrefix(control, kyvernoPolicy) && unreachableRegistry.MatchString(err.Error()):
		return notProven(control + " cannot verify the image without its registry: " + message)
	case apierrors.IsForbidden(err):
		return stopped(control, message)
	// Policies and webhooks choose their status codes; RBAC and other controls do not.
	case isPolicy(control) && errors.As(err, &status):
		return stopped(control, message)
	}
	// A missing kind means that the target is not installed. Whether the tenant may install the kind is
	// another attack.
	if meta.IsNoMatchError(err) {
		return stopped(notInstalled, message)
	}
	if late.MatchString(message) {
		return notProven(fmt.Sprintf("a webhook did not answer in time, %d times; run verify again when the machine has more time for it: %s", maxLate, message))
	}
	if apierrors.IsNotFound(err) {
		return notProven("an object that the attack needs does not exist: " + message)
	}
	return notProven("the answer is neither a success nor a known refusal: " + message)
}

// maxMessage is the maximum length of a quoted message.
const maxMessage = 400

// firstLine returns the first line of a message, or all lines of a refusal by Kyverno joined into one line.
func firstLine(s string) string {
	if kyvernoRefusal.MatchString(s) {
		s = strings.Join(strings.Fields(s), " ")
	}
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	if len(s) > maxMessage {
		s = s[:maxMessage] + "…"
	}
	return s
}
