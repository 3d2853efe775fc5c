// Package model compares the requests that the API server admits for a tenant with a model of a tenant's
// permissions. The model follows the documentation and shares no code with the rules of internal/admission,
// so an error in either of them shows as a difference.
package model

import (
	"cmp"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The name of the tenant, and the default bounds of the TenancyProfile.
const (
	tenant      = "dev-team"
	minInterval = 30 * time.Second
	maxTimeout  = 15 * time.Minute
)

var (
	// reconcilers are the accounts that Flux applies the tenant's objects as.
	reconcilers   = []string{tenant, "preview"}
	kubeConfigs   = []string{"remote"}
	receiverTypes = []string{"generic-hmac", "github", "gitlab", "bitbucket"}
	finalizers    = []string{"example.com/allowed"}
)

// posture is the same as the field spec.tenants of a TenancyProfile.
const posture = `{accounts: {reconcilers: [preview]}, kubeConfigs: [remote], bounds: {finalizers: [example.com/allowed]}, sources: {
  git: ["https://git.example.com/acme/*", "ssh://git@git.example.com/acme/**"],
  helm: ["https://charts.example.com", "oci://registry.example.com/charts/**"],
  oci: ["oci://registry.example.com/acme/*"],
  buckets: [{endpoint: s3.example.com, bucketName: acme-*, region: eu}]}}`

// expected returns the reason to refuse the tenant's request to create an object, or the
// empty string if the API server must admit the object.
func expected(o *unstructured.Unstructured) string {
	if o.GetNamespace() != profiled && o.GetNamespace() != parametrised {
		return "the namespace is not the tenant's"
	}
	for _, ask := range []func(*unstructured.Unstructured) string{kinds, identities, metadata, durations, expressions, references, sources, notifications, workloads, secrets, rights} {
		if reason := ask(o); reason != "" {
			return reason
		}
	}
	return ""
}

// kinds refuses the kinds that only the platform creates.
func kinds(o *unstructured.Unstructured) string {
	if slices.Contains([]string{"ExternalArtifact", "ResourceQuota", "LimitRange", "TenantParameters", "SourceGrant"}, o.GetKind()) {
		return "the kind is the platform's"
	}
	return ""
}

// isFlux reports whether one of Flux's controllers acts on an object.
func isFlux(o *unstructured.Unstructured) bool {
	return strings.Contains(o.GetAPIVersion(), ".fluxcd.io/")
}

func field(o *unstructured.Unstructured, at ...string) string {
	value, _, _ := unstructured.NestedString(o.Object, at...)
	return value
}

func has(o *unstructured.Unstructured, at ...string) bool {
	_, found, _ := unstructured.NestedFieldNoCopy(o.Object, at...)
	return found
}

// each returns the maps in a list.
func each(o *unstructured.Unstructured, at ...string) []map[string]any {
	list, _, _ := unstructured.NestedSlice(o.Object, at...)
	var all []map[string]any
	for _, item := range list {
		if m, ok := item.(map[string]any); ok {
			all = append(all, m)
		}
	}
	return all
}

// identities refuses service accounts that are no reconcilers, other clusters, and the
// identity of the controller for decryption.
func identities(o *unstructured.Unstructured) string {
	if kind := o.GetKind(); kind != "Kustomization" && kind != "HelmRelease" {
		return ""
	}
	if !slices.Contains(reconcilers, field(o, "spec", "serviceAccountName")) {
		return "the account is none that Flux may apply as"
	}
	if has(o, "spec", "kubeConfig") && !slices.Contains(kubeConfigs, field(o, "spec", "kubeConfig", "secretRef", "name")) {
		return "the other cluster is not allowed"
	}
	if has(o, "spec", "decryption") && !has(o, "spec", "decryption", "secretRef") {
		return "decryption without a key is with the controller's identity"
	}
	return ""
}

// metadata refuses the labels of the platform's objects, shards, and finalizers.
func metadata(o *unstructured.Unstructured) string {
	labels := o.GetLabels()
	for _, by := range []string{"kustomize.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io"} {
		if labels[by+"/namespace"] == "flux-system" {
			return "it looks as if the platform had applied it"
		}
	}
	if labels["tenure.dev/managed-by"] != "" {
		return "it looks as if the manager had made it"
	}
	onShards := o.GetKind() == "Kustomization" || o.GetKind() == "HelmRelease" || strings.HasPrefix(o.GetAPIVersion(), "source.toolkit")
	if onShards && labels["sharding.fluxcd.io/key"] != "" {
		return "the namespace is in no shard"
	}
	for _, f := range o.GetFinalizers() {
		// Without parameters, the list of the platform does not count.
		if o.GetNamespace() == profiled || !slices.Contains(finalizers, f) {
			return "finalizer " + f + " would keep the namespace"
		}
	}
	return ""
}

// durations refuses short intervals and long timeouts.
func durations(o *unstructured.Unstructured) string {
	if !isFlux(o) {
		return ""
	}
	for _, at := range [][]string{{"spec", "interval"}, {"spec", "retryInterval"}, {"spec", "chart", "spec", "interval"}} {
		if d, err := time.ParseDuration(field(o, at...)); err == nil && d < minInterval {
			return strings.Join(at, ".") + " is too short"
		}
	}
	for _, at := range [][]string{{"spec", "timeout"}, {"spec", "install", "timeout"}, {"spec", "upgrade", "timeout"}} {
		if d, err := time.ParseDuration(field(o, at...)); err == nil && d > maxTimeout {
			return strings.Join(at, ".") + " is too long"
		}
	}
	// Without a timeout a Kustomization waits for as long as its interval.
	waits, _, _ := unstructured.NestedBool(o.Object, "spec", "wait")
	interval, _ := time.ParseDuration(field(o, "spec", "interval"))
	if o.GetKind() == "Kustomization" && waits && !has(o, "spec", "timeout") && interval > maxTimeout {
		return "it waits for too long"
	}
	return ""
}

// called lists what an expression of a tenant may call.
var called = map[string]bool{
	"in": true, "has": true, "all": true, "exists": true, "exists_one": true, "filter": true, "size": true, "string": true, "int": true, "uint": true, "double": true, "timestamp": true, "duration": true,
	"matches": true, "contains": true, "startsWith": true, "endsWith": true, "split": true, "first": true, "last": true, "trim": true, "charAt": true, "indexOf": true, "substring": true, "lowerAscii": true, "upperAscii": true,
	"orValue": true, "hasValue": true, "value": true,
}

// expressions refuses expressions of tenants that may take much time or memory.
func expressions(o *unstructured.Unstructured) string {
	var all []string
	for list, fields := range map[string][]string{"dependsOn": {"readyExpr"}, "healthCheckExprs": {"current", "inProgress", "failed"}} {
		for _, item := range each(o, "spec", list) {
			for _, field := range fields {
				if text, ok := item[field].(string); ok {
					all = append(all, text)
				}
			}
		}
	}
	for _, text := range all {
		if !isFlux(o) {
			break
		}
		if utf8.RuneCountInString(text) > 1024 || strings.Contains(text, "//") {
			return "the expression is long or has a comment"
		}
		macros := 0
		parts := strings.Split(text, "(")
		for _, before := range parts[:len(parts)-1] {
			name := strings.TrimRight(before, " \t\n\f\r")
			name = name[strings.LastIndexFunc(name, func(c rune) bool {
				return c > unicode.MaxASCII || c != '_' && !unicode.IsLetter(c) && !unicode.IsDigit(c)
			})+1:]
			switch name {
			case "all", "exists", "exists_one", "filter":
				macros++
			}
			if name != "" && !called[name] {
				return "the expression calls " + name
			}
		}
		if macros > 2 {
			return "the expression has many loops"
		}
	}
	return ""
}

// references refuses references of Flux objects to other namespaces.
func references(o *unstructured.Unstructured) string {
	foreign := func(reference map[string]any) bool {
		namespace, _ := reference["namespace"].(string)
		return namespace != "" && namespace != o.GetNamespace()
	}
	var all []map[string]any
	for _, at := range [][]string{{"spec", "sourceRef"}, {"spec", "chartRef"}, {"spec", "chart", "spec", "sourceRef"}, {"spec", "imageRepositoryRef"}} {
		if reference, found, _ := unstructured.NestedMap(o.Object, at...); found {
			all = append(all, reference)
		}
	}
	for _, list := range []string{"dependsOn", "eventSources", "resources"} {
		all = append(all, each(o, "spec", list)...)
	}
	if isFlux(o) && slices.ContainsFunc(all, foreign) {
		return "it refers to another namespace"
	}
	return ""
}

// sources refuses addresses that the posture does not list, and cloud identities.
func sources(o *unstructured.Unstructured) string {
	if provider := field(o, "spec", "provider"); strings.Contains(o.GetAPIVersion(), "source.toolkit.") || o.GetKind() == "ImageRepository" {
		if provider != "" && provider != "generic" {
			return "provider " + provider + " is an identity of the platform"
		}
	}
	address := field(o, "spec", "url")
	switch o.GetKind() {
	case "GitRepository":
		if !under(address, "https", "", "git.example.com", "/acme", 1) && !under(address, "ssh", "git", "git.example.com", "/acme", 99) {
			return "the Git address is not approved"
		}
	case "OCIRepository":
		if !under(address, "oci", "", "registry.example.com", "/acme", 1) {
			return "the OCI address is not approved"
		}
	case "ImageRepository":
		if !under("oci://"+field(o, "spec", "image"), "oci", "", "registry.example.com", "/acme", 1) {
			return "the image is not approved"
		}
	case "HelmRepository":
		if !under(address, "https", "", "charts.example.com", "", 99) && !under(address, "oci", "", "registry.example.com", "/charts", 99) {
			return "the Helm address is not approved"
		}
	case "Bucket":
		if field(o, "spec", "endpoint") != "s3.example.com" || !strings.HasPrefix(field(o, "spec", "bucketName"), "acme-") || field(o, "spec", "region") != "eu" {
			return "the bucket is not approved"
		}
	case "HelmRelease", "HelmChart":
		kind := field(o, "spec", "chart", "spec", "sourceRef", "kind") + field(o, "spec", "sourceRef", "kind")
		if kind == "GitRepository" || kind == "Bucket" {
			return "a chart of one's own names its dependencies"
		}
	}
	return ""
}

// under reports whether an address is at most deep path segments below a folder of a host.
// It parses the address as a client does.
func under(address, scheme, user, host, folder string, deep int) bool {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != scheme || u.Host != host || u.User.String() != user || u.RawQuery != "" || u.Fragment != "" {
		return false
	}
	clean := path.Clean("/" + u.Path)
	if u.RawPath != "" || strings.TrimSuffix(u.Path, "/") != strings.TrimSuffix(clean, "/") {
		return false // parsers could read the path differently
	}
	if folder == "" {
		return true
	}
	rest, below := strings.CutPrefix(u.Path, folder+"/")
	return below && strings.Count(rest, "/") < deep
}

// plain matches addresses in which all parsers find the same host.
var plain = regexp.MustCompile(`^https://[a-z0-9.-]+(:[0-9]+)?(/|$)`)

// outside reports whether an https address names a host outside of the cluster.
func outside(address string) bool {
	u, err := url.Parse(address)
	if err != nil || !plain.MatchString(address) {
		return false
	}
	host := strings.TrimSuffix(u.Hostname(), ".")
	labels := strings.Split(host, ".")
	last := labels[len(labels)-1]
	// No top-level domain has a hyphen: such a name is a Service of a namespace.
	return len(labels) > 1 && !slices.Contains([]string{"svc", "local", "localhost", "internal", "cluster"}, last) && !strings.Contains(last, "-") &&
		strings.ContainsAny(last, "abcdefghijklmnopqrstuvwxyz") && !strings.Contains(host, ":") && !strings.HasPrefix(last, "0x")
}

// notifications refuses Receivers without authentication, and Providers that post into the
// cluster or with a cloud identity.
func notifications(o *unstructured.Unstructured) string {
	switch o.GetKind() {
	case "Receiver":
		if !slices.Contains(receiverTypes, field(o, "spec", "type")) {
			return "callers of this type sign nothing"
		}
	case "Provider":
		if slices.Contains([]string{"googlepubsub", "azureeventhub", "azuredevops"}, field(o, "spec", "type")) {
			return "this type uses an identity of the platform"
		}
		if address := field(o, "spec", "address"); address != "" && !outside(address) {
			return "the address is not outside"
		}
	}
	return ""
}

// workloads refuses Pods that run as a reconciler, and Pods in the network of the host.
func workloads(o *unstructured.Unstructured) string {
	at := map[string][]string{
		"Pod": {"spec"}, "Deployment": {"spec", "template", "spec"}, "StatefulSet": {"spec", "template", "spec"}, "DaemonSet": {"spec", "template", "spec"},
		"Job": {"spec", "template", "spec"}, "CronJob": {"spec", "jobTemplate", "spec", "template", "spec"},
	}[o.GetKind()]
	if at == nil {
		return ""
	}
	// Kubernetes reads the deprecated field serviceAccount if serviceAccountName is empty.
	account := cmp.Or(field(o, append(slices.Clone(at), "serviceAccountName")...), field(o, append(slices.Clone(at), "serviceAccount")...))
	if slices.Contains(reconcilers, account) {
		return "the account is one that Flux applies as"
	}
	hostNetwork, _, _ := unstructured.NestedBool(o.Object, append(slices.Clone(at), "hostNetwork")...)
	// Pod Security admission refuses Pods, and warns about templates of Pods.
	if hostNetwork && o.GetKind() == "Pod" {
		return "the Pod is privileged"
	}
	return ""
}

// secrets refuses tokens of reconcilers, kubeconfigs that Flux may use, and keys that redirect
// notifications.
func secrets(o *unstructured.Unstructured) string {
	if o.GetKind() != "Secret" {
		return ""
	}
	if slices.Contains(kubeConfigs, o.GetName()) {
		return "it is a kubeconfig that Flux may use"
	}
	if field(o, "type") == "kubernetes.io/service-account-token" && slices.Contains(reconcilers, o.GetAnnotations()["kubernetes.io/service-account.name"]) {
		return "it is a token of an account that Flux applies as"
	}
	data, _, _ := unstructured.NestedStringMap(o.Object, "stringData")
	for key, value := range data {
		switch key {
		case "proxy":
			return "a proxy sees what Flux sends"
		case "address", "githubAppBaseURL":
			if !outside(value) {
				return "the address is not outside"
			}
		case "headers":
			for line := range strings.Lines(value) {
				if name, _, _ := strings.Cut(line, ":"); !strings.EqualFold(strings.TrimSpace(name), "Authorization") {
					return "the header makes the sender somebody else"
				}
			}
		}
	}
	return ""
}

// rights refuses roles beyond the tenant's own permissions, and system groups as subjects.
func rights(o *unstructured.Unstructured) string {
	switch o.GetKind() {
	case "RoleBinding":
		if slices.Contains([]string{"admin", "edit", "cluster-admin"}, field(o, "roleRef", "name")) {
			return "the tenant has not all of these rights"
		}
		for _, s := range each(o, "subjects") {
			name, _ := s["name"].(string)
			everybody := slices.Contains([]string{"system:authenticated", "system:unauthenticated", "system:serviceaccounts", "system:masters", "system:anonymous"}, name)
			if group, others := strings.CutPrefix(name, "system:serviceaccounts:"); everybody || others && group != o.GetNamespace() {
				return "the rights go to " + name
			}
		}
	case "Role":
		for _, r := range each(o, "rules") {
			for _, list := range []string{"apiGroups", "resources", "verbs"} {
				values, _, _ := unstructured.NestedStringSlice(r, list)
				if slices.ContainsFunc(values, func(v string) bool {
					return slices.Contains([]string{"*", "escalate", "impersonate", "nodes", "resourcequotas"}, v)
				}) {
					return "the tenant has not these rights"
				}
			}
		}
	}
	return ""
}
