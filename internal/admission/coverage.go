package admission

import (
	"fmt"
	"slices"
	"strings"
)

// Request is a resource and an operation that a rule covers.
type Request struct {
	// Rule is the name of the rule.
	Rule string
	// Resource is the resource with its subresource and group, such as
	// "pods/ephemeralcontainers" or "kustomizations.kustomize.toolkit.fluxcd.io".
	Resource string
	// Operation is create, update, delete or connect.
	Operation string
}

// Requests returns the requests that the rules cover, in the order of the rules. A rule that
// covers all kinds has the resource "*".
func Requests() []Request {
	var all []Request
	for _, r := range Rules() {
		for _, on := range r.resources {
			for _, resource := range on.Resources {
				for _, operation := range on.Operations {
					request := Request{Rule: r.Name, Resource: ResourceName(resource, on.APIGroups[0]), Operation: strings.ToLower(string(operation))}
					if !slices.Contains(all, request) {
						all = append(all, request)
					}
				}
			}
		}
	}
	return all
}

// ResourceName joins a resource, with its subresource if there is one, and a group in the form of
// [Request.Resource].
func ResourceName(resource, group string) string {
	resource = strings.ReplaceAll(resource, "*/*", "*")
	if group == "" || group == "*" {
		return resource
	}
	return resource + "." + group
}

// Unrefused returns the reason why a rule refuses no request for a resource that it covers, or "" if the
// rule refuses such requests.
func Unrefused(r Request) string {
	resource, _, _ := strings.Cut(r.Resource, ".")
	_, subresource, _ := strings.Cut(resource, "/")
	if r.Operation == "create" && slices.Contains([]string{"status", "finalize", "ephemeralcontainers"}, subresource) ||
		r.Operation == "delete" && subresource != "" {
		return "Kubernetes has no such request"
	}
	for _, u := range unrefused {
		if u.rule == r.Rule && (u.operation == "" || u.operation == r.Operation) && slices.Contains(u.resources, resource) {
			return u.reason
		}
	}
	return ""
}

// unrefused are requests that a rule covers but never refuses: they contain nothing that the rule checks,
// or another rule refuses them first.
var unrefused = []struct {
	rule, operation string
	resources       []string
	reason          string
}{
	{Prefix + "bounds", "", []string{"alerts"}, "an Alert has no interval and no timeout"},
	{Prefix + "references", "", []string{"gitrepositories", "helmrepositories", "helmcharts", "ocirepositories", "buckets", "providers", "imagerepositories"}, "it refers to no object of another namespace"},
	{Prefix + "status", "", []string{"alerts/status", "providers/status"}, "Flux's API has no such status"},
	{Prefix + "sources", "", []string{"helmcharts"}, "a HelmChart has no address"},
	{Prefix + "contents", "update", []string{"namespaces", "namespaces/*"}, "`tenure-namespaces` refuses these requests too, and the API server names one rule"},
	{Prefix + "cordon", "update", []string{"namespaces/*"}, "`tenure-namespaces` refuses these requests too, and the API server names one rule"},
	{Prefix + "claims", "update", []string{"statefulsets", "resourceclaims", "resourceclaimtemplates"}, "the field is immutable"},
	{Prefix + "pods", "update", []string{"jobs"}, "the field is immutable"},
	{Prefix + "owner-pods", "", []string{"kustomizations", "helmreleases"}, "`tenure-accounts` refuses these requests too, and only warns in warn mode"},
	{Prefix + "owner-pods", "update", []string{"jobs"}, "the field is immutable"},
}

// CoverageDocument returns the requests that the rules cover as a page of Markdown.
func CoverageDocument() string {
	var b strings.Builder
	b.WriteString(`# The requests that the rules cover

Each rule, each kind and subresource that it covers, and the operations. A cross says that a
test sends such a request, which breaks the rule, to a real API server, and that the rule
refuses it: the tests of internal/admission fail when a rule covers a request that no test
shows to be refused. Where there is a reason instead, the rule refuses no such request.
Generated from internal/admission; do not edit.

| Rule | Resource | Create | Update | Delete | Connect |
|---|---|---|---|---|---|
`)
	type row struct{ rule, resource string }
	operations := []string{"create", "update", "delete", "connect"}
	cells, rows := map[Request]string{}, []row{}
	for _, r := range Requests() {
		cells[r] = Unrefused(r)
		if cells[r] == "" {
			cells[r] = "×"
		}
		if in := (row{r.Rule, r.Resource}); !slices.Contains(rows, in) {
			rows = append(rows, in)
		}
	}
	for _, r := range rows {
		fmt.Fprintf(&b, "| `%s` | %s |", r.rule, strings.ReplaceAll(r.resource, "*", `\*`))
		for _, operation := range operations {
			fmt.Fprintf(&b, " %s |", cells[Request{r.rule, r.resource, operation}])
		}
		b.WriteString("\n")
	}
	return b.String()
}
