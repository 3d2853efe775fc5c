package catalog

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/fleet/secrets/sops"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster/node"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// No private key is kept, nor is one quoted when it cannot be read. An OpenPGP key is a key as
// well, and a credential of a key service is one that cannot be used.
func TestKeysOf(t *testing.T) {
	t.Parallel()
	mine, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	hybrid, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	entity, armored := pgpKey(t)
	e := newFakeEnv(refusing(nil), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "keys"},
		Data: map[string][]byte{
			"a.agekey": []byte("# mine\n" + mine.String() + "\n"), "b.agekey": []byte("AGE-SECRET-KEY-1BROKEN"), "password": []byte(mine.String()),
			"h.agekey": []byte(hybrid.String()), "pgp.asc": armored, "sops.vault-token": []byte("x"),
		},
	})
	in := client.ObjectKey{Namespace: "apps", Name: "keys"}
	got, err := e.keysOf(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, k := range got {
		if k.secret != in {
			t.Errorf("a key is in Secret %s", k.secret)
		}
		if k.pgp != nil && (k.pgp.PrivateKey != nil || k.pgp.Subkeys[0].PrivateKey != nil) {
			t.Error("a private OpenPGP key is kept")
		}
		found = append(found, k.recipient+k.unusable)
	}
	want := []string{"b.agekey", "sops.vault-token", mine.Recipient().String(), hybrid.Recipient().String(), sops.Fingerprint(entity)}
	slices.Sort(want)
	slices.Sort(found)
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("public keys: -want, +got:\n%s", diff)
	}
	to := recipients(got)
	if len(to.Age) != 2 || len(to.PGP) != 1 {
		t.Errorf("a canary is encrypted for %d age keys and %d OpenPGP keys", len(to.Age), len(to.PGP))
	}
	if text, err := sealed(configMap("apps", "x"), to); err != nil || strings.Contains(text, "by tenure verify") {
		t.Errorf("it is not encrypted (%v):\n%s", err, text)
	}
	if got, err := e.keysOf(t.Context(), client.ObjectKey{Namespace: "apps", Name: "none"}); err != nil || got != nil {
		t.Errorf("a Secret that is not there has the keys %v (%v)", got, err)
	}
}

// pgpKey returns a new OpenPGP key, and its armored private part.
func pgpKey(t *testing.T) (*openpgp.Entity, []byte) {
	t.Helper()
	entity, err := openpgp.NewEntity("flux", "", "flux@example.com", nil)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w, err := armor.Encode(&out, openpgp.PrivateKeyType, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(entity.SerializePrivate(w, nil), w.Close()); err != nil {
		t.Fatal(err)
	}
	return entity, out.Bytes()
}

func TestOpener(t *testing.T) {
	t.Parallel()
	mine := decryptionKey{secret: client.ObjectKey{Namespace: "apps", Name: "mine"}, recipient: "age1a"}
	theirs := decryptionKey{secret: client.ObjectKey{Namespace: "billing", Name: "theirs"}, recipient: "age1a"}
	for name, tc := range map[string]struct {
		reason, secret string
		foreign        []decryptionKey
		want           string
	}{
		"none":    {"without a Secret it is the controller's key", "", []decryptionKey{theirs}, globalKeyFlag},
		"shared":  {"who has the key too is named", "mine", []decryptionKey{theirs}, "Secret billing/theirs"},
		"unknown": {"what cannot be told is not named", "mine", nil, "for others"},
	} {
		if got := decryptionConfig(tc.secret, tc.foreign, []decryptionKey{mine}); !strings.Contains(got, tc.want) || strings.Contains(got, "age1a") {
			t.Errorf("%s: %s: got %q", name, tc.reason, got)
		}
	}
}

func TestBoundOn(t *testing.T) {
	t.Parallel()
	const counted = "kustomizations.kustomize.toolkit.fluxcd.io"
	quota := func(name, resourceName, hard string) corev1.ResourceQuota {
		list := corev1.ResourceList{corev1.ResourceName(resourceName): resource.MustParse(hard)}
		return corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.ResourceQuotaStatus{Hard: list}}
	}
	scoped, pending := quota("scoped", "count/"+counted, "1"), quota("pending", "count/"+counted, "1")
	scoped.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeBestEffort}
	pending.Spec.Hard, pending.Status.Hard = pending.Status.Hard, nil
	for name, tc := range map[string]struct {
		reason string
		quotas []corev1.ResourceQuota
		bound  int64
		by     string
	}{
		"none":    {"no quota is no bound", nil, 0, ""},
		"other":   {"a quota on pods says nothing of Kustomizations", []corev1.ResourceQuota{quota("pods", "pods", "5")}, 0, ""},
		"group":   {"nor does one on the kind of another group", []corev1.ResourceQuota{quota("x", "count/kustomizations.example.com", "5")}, 0, ""},
		"least":   {"the narrowest counts", []corev1.ResourceQuota{quota("wide", "count/"+counted, "1k"), quota("narrow", "count/"+counted, "5")}, 5, "narrow"},
		"zero":    {"zero is a bound", []corev1.ResourceQuota{quota("nothing", "count/"+counted, "0")}, 0, "nothing"},
		"scoped":  {"a quota for some Pods counts no Flux objects", []corev1.ResourceQuota{scoped}, 0, ""},
		"pending": {"what is not enforced yet is no bound", []corev1.ResourceQuota{pending}, 0, ""},
	} {
		if bound, by := boundOn(tc.quotas, counted); bound != tc.bound || by != tc.by {
			t.Errorf("%s: %s: got %d by %q, want %d by %q", name, tc.reason, bound, by, tc.bound, tc.by)
		}
	}
}

// The path leads from any folder to the file.
func TestOutOf(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "canary.yaml")
	if err := os.WriteFile(file, []byte("here"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(t.TempDir(), filepath.FromSlash(traversalPath(file))))
	if err != nil || string(got) != "here" {
		t.Errorf("the path leads elsewhere: %q (%v)", got, err)
	}
}

func TestPlatforms(t *testing.T) {
	t.Parallel()
	e := &Scenario{Tenant: team}
	for name, tc := range map[string]struct {
		reason string
		labels map[string]string
		want   bool
	}{
		"nobody's":             {"what nobody says anything about may be the tenant's", nil, false},
		"tenant":               {"the tenant's label is the platform's to give", map[string]string{discovery.Label: "dev-team"}, true},
		"platform":             {"what was applied for another namespace is not the tenant's", map[string]string{"kustomize.toolkit.fluxcd.io/namespace": "flux-system"}, true},
		"set":                  {"so by flux-operator", map[string]string{flux.LabelResourceSetNamespace: "flux-system"}, true},
		"release":              {"so by Helm", map[string]string{"helm.toolkit.fluxcd.io/namespace": "flux-system"}, true},
		"generated":            {"so by a policy of the cluster, in Kyverno", map[string]string{"generate.kyverno.io/policy-name": "bounds", "generate.kyverno.io/policy-namespace": ""}, true},
		"generated for itself": {"a policy in its namespace is the tenant's", map[string]string{"generate.kyverno.io/policy-name": "bounds", "generate.kyverno.io/policy-namespace": "apps-preview"}, false},
		"own":                  {"what the tenant delivers is its own, whatever it calls it", map[string]string{"kustomize.toolkit.fluxcd.io/namespace": "apps-preview", discovery.Label: "dev-team"}, false},
	} {
		if got := e.platforms(tc.labels); got != tc.want {
			t.Errorf("%s: %s: got %t", name, tc.reason, got)
		}
	}
}

func TestJudgeSchema(t *testing.T) {
	t.Parallel()
	kind := schema.GroupKind{Group: "kustomize.toolkit.fluxcd.io", Kind: "Kustomization"}
	invalid := func(words string) error {
		return apierrors.NewInvalid(kind, "x", field.ErrorList{field.Invalid(field.NewPath("spec", "interval"), "1 minute", words)})
	}
	for name, tc := range map[string]struct {
		reason  string
		err     error
		outcome Outcome
	}{
		"accepted": {"what is written gets through", nil, GotThrough},
		"pattern":  {"a pattern of the schema refuses it", invalid(`spec.interval in body should match '^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$'`), Stopped},
		"other":    {"another mistake is none of the schema's", invalid("is immutable"), NotProven},
		"outage":   {"an outage is no schema", apierrors.NewServiceUnavailable("should match 'x'"), NotProven},
		"rights":   {"who may not write it at all does not", forbidden(`User "x" cannot create resource "things" in API group ""`), Stopped},
	} {
		if got := judgeSchema(tc.err, "it could").Outcome; got != tc.outcome {
			t.Errorf("%s: %s: got %q, want %q", name, tc.reason, got, tc.outcome)
		}
	}
}

// TestSimulated checks that an attack without an answer is neither stopped nor got through.
func TestSimulated(t *testing.T) {
	t.Parallel()
	byPolicy := forbidden(`ValidatingAdmissionPolicy 'references' with binding 'b' denied request: no`)
	for name, tc := range map[string]struct {
		reason     string
		aimed, own error
		outcome    Outcome
		control    string
	}{
		"accepted":      {"nobody says what its controller would do", nil, nil, NotProven, ""},
		"policy":        {"a policy on what is foreign stops it", byPolicy, nil, Stopped, "policy references"},
		"broken policy": {"one that refuses all is no such policy", byPolicy, byPolicy, NotProven, ""},
		"no kind":       {"a kind that is not there is no door", &meta.NoKindMatchError{}, &meta.NoKindMatchError{}, Stopped, notInstalled},
		"outage":        {"an outage is no control", apierrors.NewServiceUnavailable("later"), nil, NotProven, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			funcs := refusing(nil)
			funcs.Create = func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
				switch o.GetName() {
				case "aimed":
					return tc.aimed
				case "own":
					return tc.own
				}
				return nil
			}
			named := func(name string) func(*Scenario) *unstructured.Unstructured {
				return func(e *Scenario) *unstructured.Unstructured { return configMap(e.Namespace, name) }
			}
			f := simulated("a controller", named("aimed"), named("own"))(t.Context(), newFakeEnv(funcs))
			if f.Outcome != tc.outcome || f.Control != tc.control {
				t.Errorf("%s: got %q by %q (%s), want %q by %q", tc.reason, f.Outcome, f.Control, f.Reason, tc.outcome, tc.control)
			}
		})
	}
}

func TestKustomizeRefusals(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ reason, message, control string }{
		{"a clone of a remote base", "fs-security-constraint abs /x/tmp/kustomize-123/base: path is not in or below", "flag --no-remote-bases"},
		{"a file elsewhere, through a proxy where nothing listens", `Get "https://a.example.com/b.yaml": proxyconnect tcp: dial tcp 127.0.0.1:9: connect: connection refused`, noProxyThere},
		{"the same in the local cluster", `Get "https://a.example.com/b.yaml": nothing listens at the proxy 127.0.0.1:9, which HTTPS_PROXY names: only`, noProxyThere},
		{"a list of artifacts, through the artifact proxy", `file sources: [content=http://source-controller.flux-system.svc.cluster.local./]: HTTP Error: status code 421 (Misdirected Request)`, artifactProxy},
		{"a list that another server refuses", `file sources: [content=http://source-controller.flux-system.svc.cluster.local./]: HTTP Error: status code 403 (Forbidden)`, ""},
		{"git through such a proxy", "fatal: unable to access 'https://a.example.com/b/': Received HTTP code 502 from proxy after CONNECT", noProxyThere},
		{"a file out of the artifact", "fs-security-constraint read /tmp/canary.yaml: path is not in or below", "paths kept within the artifact"},
		{"bases that name each other", "cycle detected: candidate root '/a' contains visited root '/a'", "detection of cycles"},
		{"git that does not work", "failed to run 'git fetch': fatal: unable to access", ""},
		{"git that is not there", "no 'git' program on path", ""},
	} {
		if got, _ := controlOf(tc.message); got != tc.control {
			t.Errorf("%s: got %q, want %q", tc.reason, got, tc.control)
		}
	}
}

// S15 is stopped by both controls, and gets through if git would connect by SSH.
func TestBaseBySSH(t *testing.T) {
	t.Parallel()
	fetch := "failed to run 'git fetch --depth=1 ssh://git@bases.tenure.invalid/attacks/s7 HEAD': "
	for _, tc := range []struct {
		reason, message string
		outcome         Outcome
		control         string
	}{
		{"git uses no SSH", fetch + "fatal: transport 'ssh' not allowed", Stopped, noProxyThere + ", " + noSSH},
		{"git uses SSH", fetch + node.NoSSH + "\nfatal: Could not read from remote repository.", GotThrough, ""},
		{"git does not run", "no 'git' program on path", NotProven, ""},
		{"a later refusal says nothing about the connection", "fs-security-constraint abs /x/tmp/kustomize-123/base: path is not in or below", NotProven, ""},
		{"Flux says nothing", "", NotProven, ""},
	} {
		if f := judgeSSH(stopped(noProxyThere, "no"), tc.message); f.Outcome != tc.outcome || f.Control != tc.control {
			t.Errorf("%s: got %q by %q, want %q by %q", tc.reason, f.Outcome, f.Control, tc.outcome, tc.control)
		}
	}
}

// The keys and variables of a tenant that the platform delivers are those of its sync, in the platform's
// namespace.
func TestKeysOfSync(t *testing.T) {
	t.Parallel()
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	sync := func(namespace, name, key, values string) client.Object {
		return object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", namespace, name, map[string]any{"spec": map[string]any{
			"decryption": map[string]any{"provider": "sops", "secretRef": map[string]any{"name": key}},
			"postBuild":  map[string]any{"substituteFrom": []any{map[string]any{"kind": "Secret", "name": values}}},
		}})
	}
	secret := func(namespace, name, key, value string) client.Object {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{key: []byte(value)}}
	}
	keys := []client.Object{
		secret("flux-system", "shared", "age.agekey", identity.String()), secret("flux-system", "mine", "age.agekey", identity.String()),
		secret("flux-system", "values", "domain", "example.com"), secret("flux-system", "mine-values", "domain", "example.com"),
		secret("team", "near", "age.agekey", identity.String()),
	}
	for reason, tc := range map[string]struct {
		delivers     string
		syncs        []client.Object
		own, foreign []string
		shared       int
	}{
		"the platform's sync has the platform's key and values": {"flux-system", []client.Object{sync("flux-system", "team", "shared", "values"), sync("flux-system", "apps", "shared", "values")}, []string{"flux-system/shared"}, []string{"flux-system/shared"}, 1},
		"it has a key and values of the tenant":                 {"flux-system", []client.Object{sync("flux-system", "team", "mine", "mine-values"), sync("flux-system", "apps", "shared", "values")}, []string{"flux-system/mine"}, []string{"flux-system/shared"}, 0},
		"values that do not exist are optional":                 {"flux-system", []client.Object{sync("flux-system", "team", "mine", "none"), sync("flux-system", "apps", "shared", "none")}, []string{"flux-system/mine"}, []string{"flux-system/shared"}, 0},
		"the tenant's sync is in its own namespace":             {"team", []client.Object{sync("team", "team", "near", "values"), sync("flux-system", "apps", "shared", "values")}, []string{"team/near"}, []string{"flux-system/shared"}, 0},
	} {
		e := newFakeEnv(interceptor.Funcs{}, append(slices.Clone(keys), tc.syncs...)...)
		e.Tenant.Repositories = []discovery.Repository{{Kustomization: flux.Ref{Kind: flux.Kustomization, Namespace: tc.delivers, Name: "team"}}}
		e.Repository = &e.Tenant.Repositories[0]
		if e.Admin.Create(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "kustomize-controller"}}) != nil {
			t.Fatal("cannot create the controller")
		}
		names := func(keys []decryptionKey, err error) []string {
			if err != nil {
				t.Fatalf("%s: %v", reason, err)
			}
			var all []string
			for _, k := range keys {
				all = append(all, k.secret.String())
			}
			return all
		}
		if got := names(e.ownKeys(t.Context())); !slices.Equal(got, tc.own) {
			t.Errorf("%s: its own keys are %v, want %v", reason, got, tc.own)
		}
		if got := names(e.foreignKeys(t.Context())); !slices.Equal(got, tc.foreign) {
			t.Errorf("%s: the keys of others are %v, want %v", reason, got, tc.foreign)
		}
		shared, err := e.sharedVariables(t.Context())
		if err != nil || len(shared) != tc.shared {
			t.Errorf("%s: got %v, %v, want %d shared variables", reason, shared, err, tc.shared)
		}
	}
}
