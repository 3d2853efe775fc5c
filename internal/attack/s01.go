package attack

import (
	"context"
	"regexp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// pathNotFound is what kustomize-controller says when it has fetched an artifact
// and does not find the path in it.
var pathNotFound = regexp.MustCompile(`path not found|no such file or directory`)

func init() {
	register(Attack{
		ID: "S1", Via: API,
		Title:      "uses a source of another namespace",
		Controls:   []string{"flag --no-cross-namespace-refs", "policy on spec.sourceRef"},
		References: []string{"RFC-0003", "flux2-multi-tenancy: enforce tenant isolation"},
		Fix: Fix{
			Advice: "start kustomize-controller, helm-controller and the image controllers with --no-cross-namespace-refs=true",
			Flags:  []Flag{noCrossNamespaceRefs("kustomize-controller")},
		},
		Layers: []Layer{
			flagLayer(noCrossNamespaceRefs("kustomize-controller")),
			admissionLayer("policy on spec.sourceRef", func(e *Env) *unstructured.Unstructured { return e.kustomization("s1", nowhere, e.foreignSource) }),
		},
		Deep: true,
		Run:  crossNamespaceSource,
	})
}

// nowhere is a path that no source has.
const nowhere = "tenure-attack/nowhere"

// noCrossNamespaceRefs is the flag that closes references to other namespaces.
func noCrossNamespaceRefs(controller string) Flag {
	return Flag{Controller: controller, Flag: "--no-cross-namespace-refs=true"}
}

// foreignSource makes a Kustomization use the platform's own source.
func (e *Env) foreignSource(spec map[string]any) {
	spec["sourceRef"] = map[string]any{"kind": "GitRepository", "name": e.Root.Name, "namespace": e.Root.Namespace}
}

// crossNamespaceSource names the platform's own source, with a path that it does
// not have: that the path is missed shows that the artifact was fetched.
func crossNamespaceSource(ctx context.Context, e *Env) Finding {
	if e.Repository == nil {
		return e.noRepository()
	}
	said, err := e.apply(ctx, e.kustomization("s1", nowhere, e.foreignSource), func() {})
	var f Finding
	control, refused := controlOf(said.message)
	switch {
	case err != nil && (apierrors.IsForbidden(err) || apierrors.IsInvalid(err)):
		f = judge(err, "")
	case err != nil:
		return unproven(firstLine(err.Error()))
	case said.ready == "True" || pathNotFound.MatchString(said.message):
		return through("kustomize-controller opened the artifact of " + e.Root.String() + " for it")
	case refused:
		f = stopped(control, firstLine(said.message))
	default:
		return unproven("the answer is neither yes nor a refusal: " + firstLine(said.message))
	}
	own, err := e.apply(ctx, e.kustomization("s1-own", nowhere, nil), func() {})
	if apierrors.IsForbidden(err) && judge(err, "").Control == f.Control {
		return e.closed(ctx, f, "Kustomizations")
	}
	if err != nil || !pathNotFound.MatchString(own.message) {
		return unproven("the same with the tenant's own source does not reach its artifact: " + firstLine(own.message))
	}
	return f
}
