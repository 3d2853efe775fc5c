package localcluster

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster/network"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"
)

// TestFakeSOPS checks that encrypted values are replaced by values of the same form, and that other
// files are left alone.
func TestFakeSOPS(t *testing.T) {
	t.Parallel()
	const secret = `kind: Secret
metadata: {name: s}
data:
  key: ENC[AES256_GCM,data:a,iv:b,tag:c,type:str]
stringData:
  SECRET_DOMAIN: ENC[AES256_GCM,data:a,iv:b,tag:c,type:str]
  count: ENC[AES256_GCM,data:a,iv:b,tag:c,type:int]
  plain: text
sops: {mac: "ENC[x,type:str]", version: 3.8.1}
`
	out, ok := fakeSOPS("s.sops.yaml", []byte(secret))
	var got struct {
		Data       map[string]string
		StringData map[string]any
		Sops       any
	}
	if err := yaml.Unmarshal(out, &got); err != nil || !ok {
		t.Fatalf("%v: %s", err, out)
	}
	key, err := base64.StdEncoding.DecodeString(got.Data["key"])
	if err != nil || string(key) != "invented" || got.Sops != nil {
		t.Errorf("key %q, %v, metadata %v", key, err, got.Sops)
	}
	if got.StringData["SECRET_DOMAIN"] != "invented.example.com" || got.StringData["plain"] != "text" || got.StringData["count"] != 1.0 {
		t.Errorf("stringData %v", got.StringData)
	}
	env, ok := fakeSOPS("a.env", []byte("TOKEN=ENC[AES256_GCM,data:a,type:str]\nA=b\nsops_version=3\n"))
	if !ok || string(env) != "TOKEN=invented\nA=b\n" {
		t.Errorf("dotenv: %q", env)
	}
	for name, content := range map[string]string{"a.yaml": "note: this is not ENC[\n", "b.txt": secret} {
		if _, ok := fakeSOPS(name, []byte(content)); ok {
			t.Errorf("%s is not a file of SOPS that Flux decrypts", name)
		}
	}
}

// TestFakeCredentials checks that an encrypted Secret which Flux reads as credentials or as a key gets
// data that Flux accepts, whatever namespace kustomize gives it, and that others keep their keys.
func TestFakeCredentials(t *testing.T) {
	t.Parallel()
	const sync = `apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: app, namespace: template}
spec: {url: "https://git.example.com/app", secretRef: {name: auth}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: app, namespace: template}
spec: {decryption: {provider: sops, secretRef: {name: sops-age}}}
`
	const secrets = `kind: Secret
metadata: {name: auth}
stringData: {identity: invented, known_hosts: invented}
---
kind: Secret
metadata: {name: sops-age}
data: {age.agekey: aW52ZW50ZWQ=}
---
kind: Secret
metadata: {name: database}
stringData: {password: invented}
`
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "sync.yaml"), []byte(sync), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &Cluster{opts: Options{Maps: []network.Map{{Kind: network.KindGit, Dir: dir}}}}
	out, err := c.fakeCredentials("a.yaml", []byte(secrets), c.credentialUses())
	if err != nil {
		t.Fatal(err)
	}
	const values = "# not one of Kubernetes'\n- list\n"
	if same, err := c.fakeCredentials("values.yaml", []byte(values), c.credentialUses()); err != nil || string(same) != values {
		t.Errorf("a file without such a Secret became %q, %v", same, err)
	}
	got := map[string]map[string]any{}
	for _, object := range documentsOf(out) {
		if object["data"] != nil {
			t.Errorf("the data before is still there: %v", object)
		}
		got[object["metadata"].(map[string]any)["name"].(string)] = object["stringData"].(map[string]any)
	}
	key, _ := got["sops-age"]["invented.agekey"].(string)
	if _, err := age.ParseX25519Identity(key); err != nil {
		t.Errorf("Flux could not read the key %q: %v", key, err)
	}
	delete(got, "sops-age")
	want := map[string]map[string]any{"auth": {"username": "git", "password": "local"}, "database": {"password": "invented"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Encrypted values get into objects if the file has objects of other kinds, or if an object of
// Flux takes values or variables from its Secret.
func TestFeedsObjects(t *testing.T) {
	t.Parallel()
	const secret = "kind: Secret\nmetadata: {name: %s}\nstringData: {a: 'ENC[x,type:str]'}\nsops: {}\n"
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "sync.yaml"), []byte("kind: Kustomization\nspec: {postBuild: {substituteFrom: [{kind: Secret, name: variables}]}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &Cluster{opts: Options{Maps: []network.Map{{Kind: network.KindGit, Dir: dir}}}}
	for reason, tc := range map[string]struct {
		name, content string
		want          bool
	}{
		"only Flux and Pods read it":          {"s.yaml", fmt.Sprintf(secret, "credentials"), false},
		"a Kustomization has variables of it": {"s.yaml", fmt.Sprintf(secret, "variables"), true},
		"one of two":                          {"s.yaml", fmt.Sprintf(secret+"---\n"+secret, "credentials", "variables"), true},
		"an object of another kind":           {"s.yaml", fmt.Sprintf(secret, "credentials") + "---\nkind: ClusterPolicy\nspec: {x: 'ENC[x,type:str]'}\nsops: {}\n", true},
		"an object beside it":                 {"s.yaml", fmt.Sprintf(secret, "credentials") + "---\nkind: RoleBinding\nmetadata: {name: team}\n", false},
		"values of a chart":                   {"values.yaml", "replicas: 'ENC[x,type:int]'\nsops: {}\n", true},
		"a file of variables":                 {"a.env", "A=ENC[x,type:str]\nsops_version=3\n", true},
	} {
		if got := feedsObjects(tc.name, []byte(tc.content), c.takers()); got != tc.want {
			t.Errorf("%s: got %t", reason, got)
		}
	}
}

// TestFakeForAnothersSecret checks that an object whose Secret was made for another one is reconciled, once.
func TestFakeForAnothersSecret(t *testing.T) {
	t.Parallel()
	kustomization := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": map[string]any{"name": "second", "namespace": "flux-system"},
		"spec": map[string]any{"decryption": map[string]any{"provider": "sops", "secretRef": map[string]any{"name": "age"}}},
	}}
	kube := fakeclient.NewClientBuilder().WithScheme(flux.NewScheme()).WithObjects(kustomization).Build()
	c := &Cluster{client: fake.NewClientset(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "age", Namespace: "flux-system"}})}
	ref, retried := flux.Ref{Kind: flux.Kustomization, Namespace: "flux-system", Name: "second"}, map[flux.Ref]bool{}
	var requests []string
	for range 2 {
		if err := c.fakeFor(t.Context(), kube, ref, retried); err != nil {
			t.Fatal(err)
		}
		u := kustomization.DeepCopy()
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(u), u); err != nil {
			t.Fatal(err)
		}
		requests = append(requests, u.GetAnnotations()["reconcile.fluxcd.io/requestedAt"])
	}
	if requests[0] == "" || requests[0] != requests[1] {
		t.Errorf("reconciliation was requested at %q", requests)
	}
}

// TestFakeForACopy checks that a Secret is made that only a ResourceSet lacks.
func TestFakeForACopy(t *testing.T) {
	t.Parallel()
	set := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "fluxcd.controlplane.io/v1", "kind": "ResourceSet", "metadata": map[string]any{"name": "teams", "namespace": "flux-system"},
		"spec": map[string]any{"resources": []any{map[string]any{
			"kind": "Secret", "metadata": map[string]any{"name": "auth", "annotations": map[string]any{flux.CopyAnnotation: "flux-system/git-auth"}},
		}}},
		"status": map[string]any{"conditions": []any{map[string]any{
			"type": "Ready", "status": "False", "reason": "ReconciliationFailed",
			"message": `failed to copy data from Secret/flux-system/git-auth: secrets "git-auth" not found`,
		}}},
	}}
	c := &Cluster{client: fake.NewClientset(), life: t.Context()}
	c.opts.Report = func(error) {}
	kube := fakeclient.NewClientBuilder().WithScheme(flux.NewScheme()).WithObjects(set).Build()
	go func() { _ = c.fakeSecrets(kube) }()
	testwait.For(t, "the Secret that the ResourceSet copies", 10*time.Second, func() (bool, string) {
		_, err := c.client.CoreV1().Secrets("flux-system").Get(t.Context(), "git-auth", metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
}

// TestInvent checks the keys of invented Secrets, by their use.
func TestInvent(t *testing.T) {
	t.Parallel()
	c := &Cluster{}
	for reason, tc := range map[string]struct {
		use  flux.SecretUse
		keys string
	}{
		"HTTPS":        {flux.SecretUse{Purpose: flux.ForGit, URL: "https://git.example.com/a"}, "password username"},
		"registry":     {flux.SecretUse{Purpose: flux.ForRegistry, URL: "oci://ghcr.io/a/b"}, ".dockerconfigjson"},
		"bucket":       {flux.SecretUse{Purpose: flux.ForBucket}, "accesskey secretkey"},
		"one value":    {flux.SecretUse{Purpose: flux.ForValues, Key: "password", Target: "db.password"}, "password"},
		"all values":   {flux.SecretUse{Purpose: flux.ForValues, Key: "values.yaml"}, "values.yaml"},
		"a decryption": {flux.SecretUse{Purpose: flux.ForDecryption}, "invented.agekey"},
	} {
		data, err := c.invent(tc.use)
		if err != nil {
			t.Fatal(err)
		}
		var keys []string
		for _, key := range []string{".dockerconfigjson", "accesskey", "invented.agekey", "password", "secretkey", "username", "values.yaml"} {
			if _, ok := data[key]; ok {
				keys = append(keys, key)
			}
		}
		if got := strings.Join(keys, " "); got != tc.keys || len(keys) != len(data) {
			t.Errorf("%s: keys %q of %d, want %q", reason, got, len(data), tc.keys)
		}
		if key, ok := data["invented.agekey"]; ok {
			if _, err := age.ParseX25519Identity(key); err != nil {
				t.Errorf("%s: Flux could not read the key: %v", reason, err)
			}
		}
	}
}

// TestHasKey checks that files are not replaced if the admin applies the key.
func TestHasKey(t *testing.T) {
	t.Parallel()
	c := &Cluster{}
	if c.hasKey() {
		t.Error("there is no key")
	}
	c.objects.manual = []*unstructured.Unstructured{{Object: map[string]any{"kind": "Secret", "stringData": map[string]any{"a.agekey": "x"}}}}
	if !c.hasKey() {
		t.Error("the key is not found")
	}
}

// TestKindsIn checks that --crds finds the CRDs of a chart's folder, without their conversion.
func TestKindsIn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"crds/a.yaml":          "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: a.example.com}\nspec: {conversion: {strategy: Webhook}}\n",
		"templates/bad.yaml":   "{{ if .Values.crds }}\nkind: CustomResourceDefinition\n{{ end }}\n",
		"templates/other.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n",
	} {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kinds, err := kindsIn(dir)
	if err != nil || len(kinds) != 1 || kinds[0].GetName() != "a.example.com" {
		t.Fatalf("got %v, %v", kinds, err)
	}
	if _, found, _ := unstructured.NestedMap(kinds[0].Object, "spec", "conversion"); found {
		t.Error("the conversion webhook does not run here")
	}
	if _, err := kindsIn(filepath.Join(dir, "templates", "other.yaml")); !errors.Is(err, errNoKinds) {
		t.Errorf("a file without CRDs: %v", err)
	}
	c := &Cluster{}
	c.objects.kinds = kinds
	c.addKinds(kinds)
	if len(c.objects.kinds) != 1 {
		t.Error("the fleet's own CRD must stay the only one")
	}
}
