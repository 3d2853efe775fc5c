package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
)

// release is a row of `helm list`.
type release struct {
	Name, Namespace, Revision, Status string
}

func (p proxied) releases() []release {
	p.t.Helper()
	var list []release
	if err := json.Unmarshal([]byte(p.runs("helm", "list", "-A", "-o", "json")), &list); err != nil {
		p.t.Fatal(err)
	}
	return list
}

// seesReleases compares the output of `helm list -A`.
func (p proxied) seesReleases(reason string, want ...release) {
	p.t.Helper()
	if diff := cmp.Diff(append([]release{}, want...), p.releases()); diff != "" {
		p.t.Errorf("%s: -want +got:\n%s", reason, diff)
	}
}

// testHelm installs, upgrades and removes releases as two tenants, and tries forbidden actions
// as each. It leaves one release of each tenant.
func testHelm(one, two proxied) {
	root, err := testcluster.Repository()
	if err != nil {
		one.t.Fatal(err)
	}
	chart := filepath.Join(root, "examples", "charts", "web")
	one.seesReleases("nothing is released")
	one.runs("helm", "install", "mine", chart, "-n", "one-more", "--wait", atMost)
	two.runs("helm", "install", "theirs", chart, "-n", "two")
	one.seesReleases("the tenant's own", release{"mine", "one-more", "1", "deployed"})
	two.seesReleases("the other tenant's own", release{"theirs", "two", "1", "deployed"})

	one.runs("helm", "upgrade", "mine", chart, "-n", "one-more", "--set", "replicas=2", "--wait", atMost)
	one.seesReleases("the upgraded one", release{"mine", "one-more", "2", "deployed"})
	if got := one.field("one-more", "deployment/mine", ".status.readyReplicas"); got != "2" {
		one.t.Errorf("after the upgrade %q replicas are ready, want 2", got)
	}
	for _, words := range []string{"REVISION: 2", "STATUS: deployed", "v1/Deployment", "v1/Pod(related)"} {
		if said := one.runs("helm", "status", "mine", "-n", "one-more"); !strings.Contains(said, words) {
			one.t.Errorf("helm status lacks %q:\n%s", words, said)
		}
	}
	one.runs("helm", "rollback", "mine", "1", "-n", "one-more", "--wait", atMost)
	if got := one.field("one-more", "deployment/mine", ".spec.replicas"); got != "1" {
		one.t.Errorf("after the rollback there are %q replicas, want 1", got)
	}

	for _, namespace := range []string{"two", "flux-system"} {
		in := func(why string, args ...string) {
			one.t.Helper()
			one.refused(fmt.Sprintf(`%s in API group "" in the namespace %q`, why, namespace), "helm", append(args, "-n", namespace)...)
		}
		in(`cannot get resource "services"`, "install", "mine", chart)
		in(`cannot list resource "secrets"`, "list")
		in(`cannot list resource "secrets"`, "status", "theirs")
		in(`cannot list resource "secrets"`, "get", "values", "theirs")
		in(`cannot list resource "secrets"`, "upgrade", "theirs", chart)
		in(`cannot list resource "secrets"`, "uninstall", "theirs")
	}
	// Charts that aim elsewhere.
	for name, object := range map[string]string{
		`cannot get resource "configmaps" in API group "" in the namespace "two"`: "{apiVersion: v1, kind: ConfigMap, metadata: {name: aimed, namespace: two}}",
		`cannot get resource "clusterroles"`:                                      "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: aimed}}",
	} {
		dir := newFolder(one.t, map[string]string{"Chart.yaml": "apiVersion: v2\nname: aimed\nversion: 1.0.0\n", "templates/aimed.yaml": object})
		one.refused(name, "helm", "install", "aimed", dir, "-n", "one")
	}
	if left := one.kubectl("", "get", "clusterroles/aimed", "configmaps/aimed", "-n", "two", "--ignore-not-found", "-o", "name"); left != "" {
		one.t.Errorf("a refused chart has left %s", left)
	}

	one.runs("helm", "install", "short", chart, "-n", "one")
	one.runs("helm", "uninstall", "short", "-n", "one", "--wait", atMost)
	one.seesReleases("after the uninstall", release{"mine", "one-more", "3", "deployed"})
	two.seesReleases("the other tenant's, untouched", release{"theirs", "two", "1", "deployed"})
	// Helm does not wait for the end of Pods that it removes or scales down.
	testwait.For(one.t, "one Pod to be left, that of mine", patience, func() (bool, string) {
		pods := one.kubectl("", "get", "pods", "-n", "one", "-o", "name") + one.kubectl("", "get", "pods", "-n", "one-more", "-o", "name")
		return strings.Count(pods, "\n") == 1 && strings.HasPrefix(pods, "pod/mine-"), pods
	})
}

// testFluxClient reads and reconciles with Flux's own command.
func testFluxClient(p proxied) {
	for _, tc := range []struct {
		reason string
		args   []string
		want   []string // words that are in it
	}{
		{"everything", []string{"get", "all", "-A"}, []string{"gitrepository/app", "kustomization/app", "Applied revision: main@sha1:"}},
		{"Kustomizations", []string{"get", "kustomizations", "-A"}, []string{"one", "app", "True"}},
		{"sources of every kind", []string{"get", "sources", "all", "-A"}, []string{"gitrepository/app"}},
		{"one namespace", []string{"get", "all", "-n", "one"}, []string{"kustomization/app"}},
		{"events", []string{"events", "-A"}, []string{"Kustomization/app", "GitRepository/app"}},
		{"events of an object", []string{"events", "-n", "one", "--for", "Kustomization/app"}, []string{"ReconciliationSucceeded"}},
		{"what an object applied", []string{"tree", "kustomization", "app", "-n", "one"}, []string{"Kustomization/one/app", "ConfigMap/one/app"}},
		{"who applied an object", []string{"trace", "configmap", "app", "-n", "one"}, []string{"Kustomization:", "GitRepository:", "https://git.example.com/acme/app"}},
		{"figures", []string{"stats", "-A"}, []string{"GitRepository"}},
		{"the server's version", []string{"check", "--pre"}, nil},
	} {
		out, errs, err := p.program("flux", tc.args...)
		if err != nil || strings.Contains(errs, "✗") {
			p.t.Errorf("%s: flux %s: %v\n%s%s", tc.reason, strings.Join(tc.args, " "), err, out, errs)
		}
		for _, word := range tc.want {
			if !strings.Contains(out, word) {
				p.t.Errorf("%s: flux %s lacks %q:\n%s", tc.reason, strings.Join(tc.args, " "), word, out)
			}
		}
		for _, others := range []string{"two", "flux-system", "tenants"} {
			if strings.Contains(out+errs, others) {
				p.t.Errorf("%s: flux %s shows %q:\n%s%s", tc.reason, strings.Join(tc.args, " "), others, out, errs)
			}
		}
	}
	rows := 0
	p.watching("flux", []string{"get", "kustomizations", "-A", "--watch", "--no-header"}, func(line string) bool {
		if rows++; rows == 1 {
			p.runs("flux", "reconcile", "kustomization", "app", "-n", "one", "--with-source")
		}
		if !strings.HasPrefix(line, "one") {
			p.t.Errorf("flux --watch shows %q", line)
		}
		return rows > 1
	})
	p.runs("flux", "reconcile", "source", "git", "app", "-n", "one")
	p.runs("flux", "suspend", "kustomization", "app", "-n", "one")
	p.runs("flux", "resume", "kustomization", "app", "-n", "one")

	p.refused("is forbidden", "flux", "get", "kustomizations", "-n", "two")
	p.refused("is forbidden", "flux", "reconcile", "source", "git", "app", "-n", "two")
	p.refused("is forbidden", "flux", "reconcile", "kustomization", "app", "-n", "two")
	p.refused("is forbidden", "flux", "events", "-n", "two")
	p.refused("is forbidden", "flux", "reconcile", "kustomization", "flux-system")
	// The CRDs and controllers are the platform's.
	p.refused("is forbidden", "flux", "check")
	p.refused("is forbidden", "flux", "logs", "-A")
}
