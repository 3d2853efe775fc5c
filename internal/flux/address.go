package flux

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Addresses returns the addresses of the sources among failed objects whose reason contains the
// text, as the option --map of the local cluster names them, sorted and without duplicates. It
// skips sources that are gone.
func Addresses(ctx context.Context, c client.Reader, failures []Finding, reason string) []string {
	var addresses []string
	for _, f := range failures {
		if !strings.Contains(f.Reason, reason) || !slices.Contains(SourceKinds(), f.Row.Kind) {
			continue
		}
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(f.Row.Kind.GroupVersionKind())
		if c.Get(ctx, client.ObjectKey{Namespace: f.Row.Namespace, Name: f.Row.Name}, u) != nil {
			continue
		}
		if address := cmp.Or(addressOf(u), chartAddress(ctx, c, u)); address != "" {
			addresses = append(addresses, address)
		}
	}
	slices.Sort(addresses)
	return slices.Compact(addresses)
}

// chartAddress returns the address of a chart from a HelmRepository of type oci, which fetches nothing
// itself, and "" for other objects.
func chartAddress(ctx context.Context, c client.Reader, u *unstructured.Unstructured) string {
	chart, _, _ := unstructured.NestedString(u.Object, "spec", "chart")
	ref, _, _ := unstructured.NestedStringMap(u.Object, "spec", "sourceRef")
	if u.GetKind() != string(HelmChart) || ref["kind"] != string(HelmRepository) {
		return ""
	}
	repository := &unstructured.Unstructured{}
	repository.SetGroupVersionKind(HelmRepository.GroupVersionKind())
	if c.Get(ctx, client.ObjectKey{Namespace: u.GetNamespace(), Name: ref["name"]}, repository) != nil {
		return ""
	}
	url := addressOf(repository)
	if !strings.HasPrefix(url, "oci://") {
		return ""
	}
	return strings.TrimSuffix(url, "/") + "/" + chart
}

// addressOf returns the address of a source as --map takes it. It has the branch of a GitRepository, unless
// that selects a tag, a range of versions or a commit, which only a Git work tree has. It has the tag of an
// OCIRepository, unless that selects a range: a folder at an address without a tag has the version of its
// chart as tag.
func addressOf(u *unstructured.Unstructured) string {
	field := func(path ...string) string {
		text, _, _ := unstructured.NestedString(u.Object, path...)
		return text
	}
	url := field("spec", "url")
	switch Kind(u.GetKind()) {
	case GitRepository:
		if branch := FollowedBranch(u); branch != "" {
			return url + "#" + branch
		}
		return url
	case OCIRepository:
		return strings.TrimSuffix(url+":"+Tag(u), ":")
	case HelmRepository:
		return url
	}
	return ""
}

// Branch returns the branch that a GitRepository selects with spec.ref.branch, or with a spec.ref.name
// of the form refs/heads/BRANCH, which has precedence. It returns "" if the object names no branch:
// Flux's default is master.
func Branch(u *unstructured.Unstructured) string {
	ref, _, _ := unstructured.NestedStringMap(u.Object, "spec", "ref")
	if branch, ok := strings.CutPrefix(ref["name"], "refs/heads/"); ok {
		return branch
	}
	return ref["branch"]
}

// FollowedBranch returns the branch that a GitRepository follows: the branch of [Branch], or Flux's
// default. It returns "" if the object selects a tag, a range of versions or a commit.
func FollowedBranch(u *unstructured.Unstructured) string {
	if ref, _, _ := unstructured.NestedStringMap(u.Object, "spec", "ref"); len(ref) == 0 {
		return "master"
	}
	return Branch(u)
}

// Tag returns the tag that an OCIRepository selects: with spec.ref.tag, or with a range of versions,
// of which Flux has found the tag in the status. It returns "latest", which is Flux's default, if
// the object has no spec.ref, and "" if it selects a digest, or Flux has found no version.
func Tag(u *unstructured.Unstructured) string {
	ref, _, _ := unstructured.NestedStringMap(u.Object, "spec", "ref")
	switch {
	case ref["digest"] != "":
		return ""
	case ref["semver"] != "":
		revision, _, _ := unstructured.NestedString(u.Object, "status", "artifact", "revision")
		tag, _, _ := strings.Cut(revision, "@")
		return tag
	case ref["tag"] != "":
		return ref["tag"]
	}
	return "latest"
}

// AppliedFolder returns the address of the source of a Kustomization, without a branch or a tag, and the
// folder of it that the Kustomization applies. It returns an error if one of them does not exist.
func AppliedFolder(ctx context.Context, c client.Reader, kustomization Ref) (address, dir string, err error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(Kustomization.GroupVersionKind())
	if err := c.Get(ctx, client.ObjectKey{Namespace: kustomization.Namespace, Name: kustomization.Name}, u); err != nil {
		return "", "", fmt.Errorf("cannot see what %s applies: %w", kustomization, err)
	}
	dir, _, _ = unstructured.NestedString(u.Object, "spec", "path")
	of, _, _ := unstructured.NestedStringMap(u.Object, "spec", "sourceRef")
	source := &unstructured.Unstructured{}
	source.SetGroupVersionKind(Kind(of["kind"]).GroupVersionKind())
	if err := c.Get(ctx, client.ObjectKey{Namespace: cmp.Or(of["namespace"], kustomization.Namespace), Name: of["name"]}, source); err != nil {
		return "", "", fmt.Errorf("cannot see what %s applies: %w", kustomization, err)
	}
	address, _, _ = unstructured.NestedString(source.Object, "spec", "url")
	return address, dir, nil
}
