package incluster_test

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/cli/check/incluster"
	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
	"github.com/tenure-dev/tenure/internal/ui"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// patience is how long the API server may need to notice changed rights.
const patience = 30 * time.Second

func TestMain(m *testing.M) { os.Exit(testcluster.Main(m)) }

// install applies Tenure with the CronJob, without Deployments, and returns the configuration of a
// client that is the account of the CronJob.
func install(t *testing.T) (admin *rest.Config, account *rest.Config) {
	t.Helper()
	admin = testcluster.Shared(t).REST
	yes := true
	objects, err := lockdown.Objects("flux-system", lockdown.Options{Check: &yes, Defaults: &yes})
	if err != nil {
		t.Fatal(err)
	}
	namespace := []byte("{apiVersion: v1, kind: Namespace, metadata: {name: flux-system}}")
	webhooks := func(o *unstructured.Unstructured) bool { return strings.HasSuffix(o.GetKind(), "WebhookConfiguration") }
	testcluster.Apply(t, admin, func(o *unstructured.Unstructured) bool { return testcluster.WithoutControllers(o) && !webhooks(o) },
		namespace, config.FluxComponents(), objects)
	token, err := kubernetes.NewForConfigOrDie(admin).CoreV1().ServiceAccounts("flux-system").CreateToken(t.Context(), "tenure-check", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	account = rest.AnonymousClientConfig(admin)
	account.BearerToken, account.QPS = token.Status.Token, -1
	return admin, account
}

// connect returns the cluster as the user of a configuration sees it.
func connect(t *testing.T, config *rest.Config) lockdown.Cluster {
	t.Helper()
	cluster, err := incluster.Connect(config, "flux-system")
	if err != nil {
		t.Fatal(err)
	}
	return cluster
}

// TestRights checks with the token of the CronJob's account that the check finds what it finds as an
// admin, that it needs each of the account's rights, and that these read and write nothing.
func TestRights(t *testing.T) {
	admin, config := install(t)
	account := connect(t, config)
	var found []lockdown.Result
	testwait.For(t, "the account to have its rights", patience, func() (bool, string) {
		var err error
		found, err = account.Check(t.Context())
		return err == nil, "the check: " + text(err)
	})
	want, err := connect(t, admin).Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, found); diff != "" || len(found) < 10 {
		t.Errorf("-as an admin +as the account:\n%s", diff)
	}

	kube := kubernetes.NewForConfigOrDie(admin).RbacV1()
	role, err := kube.ClusterRoles().Get(t.Context(), "tenure-check", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	needsEach(t, account, "ClusterRole", role.Rules, func(rules []rbacv1.PolicyRule) {
		now, err := kube.ClusterRoles().Get(t.Context(), "tenure-check", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		now.Rules = rules
		if _, err := kube.ClusterRoles().Update(t.Context(), now, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	for _, namespace := range []string{"flux-system", "default"} {
		role, err := kube.Roles(namespace).Get(t.Context(), "tenure-check", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		needsEach(t, account, "Role of "+namespace, role.Rules, func(rules []rbacv1.PolicyRule) {
			now, err := kube.Roles(namespace).Get(t.Context(), "tenure-check", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			now.Rules = rules
			if _, err := kube.Roles(namespace).Update(t.Context(), now, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// needsEach takes each resource out of a role's rules, and expects that the check then fails.
func needsEach(t *testing.T, account lockdown.Cluster, name string, rules []rbacv1.PolicyRule, set func([]rbacv1.PolicyRule)) {
	t.Helper()
	for i, rule := range rules {
		for j, resource := range rule.Resources {
			if resource == "secrets" || !slices.Equal(rule.Verbs, []string{"list"}) && !slices.Equal(rule.Verbs, []string{"get"}) {
				t.Errorf("the %s may %v %s", name, rule.Verbs, resource)
			}
			fewer := slices.Clone(rules)
			fewer[i].Resources = slices.Delete(slices.Clone(rule.Resources), j, j+1)
			if len(fewer[i].Resources) == 0 {
				fewer = slices.Delete(fewer, i, i+1)
			}
			set(fewer)
			testwait.For(t, "the check to need "+resource+" of the "+name, patience, func() (bool, string) {
				_, err := account.Check(t.Context())
				return err != nil && strings.Contains(err.Error(), "forbidden"), "the check: " + text(err)
			})
		}
	}
	set(rules)
	testwait.For(t, "the account to have its rights again", patience, func() (bool, string) {
		_, err := account.Check(t.Context())
		return err == nil, "the check: " + text(err)
	})
}

func text(err error) string {
	if err == nil {
		return "no error"
	}
	return err.Error()
}

// TestPrint checks what is printed, and which results are an error.
func TestPrint(t *testing.T) {
	t.Parallel()
	good, bad := lockdown.Result{Name: "kinds", OK: true, Message: "as installed"}, lockdown.Result{Name: "roles", Message: "more", Fix: "remove it"}
	located := lockdown.Result{Name: "labels", Message: "none", Fix: "add one", Objects: []string{"Namespace apps"}, Files: []string{"apps.yaml:3"}}
	manager := lockdown.Result{Name: "manager", Message: "missing", Fix: "remove it"}
	for _, tt := range []struct {
		reason   string
		results  []lockdown.Result
		err      error
		out, why string
		output   string
	}{
		{"all is well", []lockdown.Result{good}, nil, "CHECK   READY   MESSAGE\nkinds   True    as installed\n", "", ""},
		{"one fails, and its row has the fix", []lockdown.Result{good, bad}, nil, "roles   False   more: remove it\n", "✗ 1 of 2 checks failed\n", ""},
		{"several fail, and their fix is said once", []lockdown.Result{bad, manager}, nil, "roles     False   more\nmanager   False   missing\n", "✗ 2 of 2 checks failed\n  for 2 of them: remove it\n", ""},
		{"the checks ended early", []lockdown.Result{good}, os.ErrClosed, "kinds   True", "✗ " + os.ErrClosed.Error() + "\n", ""},
		{"a row names the file of the object", []lockdown.Result{located}, nil, "labels   False   none (apps.yaml:3): add one\n", "✗ 1 of 1 checks failed\n", ""},
		{
			"JSON has the fields apart", []lockdown.Result{good, located}, nil,
			"\"ready\": false,\n      \"message\": \"none\",\n      \"fix\": \"add one\",\n      \"objects\": [\n        \"Namespace apps\"\n      ],\n      \"files\": [\n        \"apps.yaml:3\"\n      ]\n    }\n  ],\n  \"failed\": 1\n}\n",
			"✗ 1 of 2 checks failed\n", "json",
		},
		{"YAML says why the checks ended early", []lockdown.Result{good}, os.ErrClosed, "error: file already closed\nfailed: 0\n", "✗ " + os.ErrClosed.Error() + "\n", "yaml"},
		{"nothing was checked", nil, os.ErrClosed, "", "✗ " + os.ErrClosed.Error() + "\n", ""},
	} {
		var out, errs bytes.Buffer
		if err := incluster.Print(ui.IO{Out: &out, Err: &errs}, tt.output, tt.results, tt.err); err != nil {
			ui.PrintError(ui.NewScreen(&errs), err)
		}
		if errs.String() != tt.why || !strings.Contains(out.String(), tt.out) {
			t.Errorf("%s: got %q and the error %q", tt.reason, out.String(), errs.String())
		}
	}
}
