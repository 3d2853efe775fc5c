package e2e

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/google/go-cmp/cmp"

	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
)

// delivered is the content of the new tenants' repositories.
const delivered = `apiVersion: v1
kind: ConfigMap
metadata: {name: delivered}
data: {by: the team}
`

// decryptionKeys are the platform's keys, one for age and one for OpenPGP: the Secrets with
// the private keys, and the age recipient and the file with the OpenPGP public key.
type decryptionKeys struct{ secrets, recipient, publicFile string }

func makeKeys(t *testing.T) decryptionKeys {
	t.Helper()
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	// The key is not RSA: gpg requires the first prime to be the smaller one (RFC 9580, section
	// 5.5.5.1). The library chooses the order at random, and then gpg fails sometimes.
	entity, err := openpgp.NewEntity("flux", "", "flux@example.com", &packet.Config{Algorithm: packet.PubKeyAlgoEdDSA, Curve: packet.Curve25519})
	if err != nil {
		t.Fatal(err)
	}
	armored := func(kind string, serialize func(io.Writer) error) string {
		var text bytes.Buffer
		w, err := armor.Encode(&text, kind, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(serialize(w), w.Close()); err != nil {
			t.Fatal(err)
		}
		return text.String()
	}
	file := filepath.Join(t.TempDir(), "flux.asc")
	write(t, armored(openpgp.PublicKeyType, entity.Serialize), file)
	private := armored(openpgp.PrivateKeyType, func(w io.Writer) error { return entity.SerializePrivate(w, nil) })
	encode := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	secrets := "apiVersion: v1\nkind: Namespace\nmetadata: {name: flux-system}\n---\n" +
		"apiVersion: v1\nkind: Secret\nmetadata: {name: sops-age, namespace: flux-system}\ndata: {flux.agekey: " + encode(identity.String()) + "}\n---\n" +
		"apiVersion: v1\nkind: Secret\nmetadata: {name: sops-gpg, namespace: flux-system}\ndata: {flux.asc: " + encode(private) + "}\n"
	return decryptionKeys{secrets, identity.Recipient().String(), file}
}

// onboard runs `tenure create tenant` on the example fleet.
func (e example) onboard(t *testing.T, stdin, tenant string, args ...string) string {
	t.Helper()
	return e.tenure(t, stdin, append([]string{"create", "tenant", tenant, "--with-namespace", tenant,
		"--git-url", "https://git.example.com/acme/" + tenant, "--environment", "staging=./staging", "--cluster-role", "acme-tenant"}, args...)...)
}

// tenure runs a command that changes the fleet.
func (e example) tenure(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	bin, err := testcluster.BinDir()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "tenure"), append(args, "--fleet", e.platform, "--yes")...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("tenure %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestTenantComesAndGoes adds three tenants to the example fleet, one with a public repository
// and two with encrypted credentials, one for age and one for OpenPGP, and deletes one of the
// fleet's own tenants.
func TestTenantComesAndGoes(t *testing.T) {
	t.Parallel()
	e, keys := copyExample(t), makeKeys(t)
	write(t, keys.secrets, e.bootstrap, "sops.yaml")
	said := e.onboard(t, "", "search")
	said += e.onboard(t, "t0ken-of-mail", "mail", "--secret", "token", "--password-file", "-", "--age-recipient", keys.recipient)
	said += e.onboard(t, "t0ken-of-maps", "maps", "--secret", "token", "--bearer-token-file", "-", "--pgp-key-file", keys.publicFile)
	if strings.Contains(said, "t0ken") {
		t.Errorf("a secret was printed:\n%s", said)
	}
	maps := []string{"https://git.example.com/acme/billing#main=" + e.billing}
	for _, tenant := range []string{"search", "mail", "maps", "late"} {
		repository := t.TempDir()
		write(t, delivered, repository, "staging", "delivered.yaml")
		write(t, "namespace: "+tenant+"\nresources: [delivered.yaml]\n", repository, "staging", "kustomization.yaml")
		maps = append(maps, "https://git.example.com/acme/"+tenant+"#main="+repository)
	}
	r, failed := start(t, e.options(t, "clusters/staging", maps...))
	expectNothing(t, "the fleet becomes ready with its new tenants", failed)

	for _, tenant := range []string{"search", "mail", "maps"} {
		if got := r.field(tenant, "configmap/delivered", ".data.by"); got != "the team" {
			t.Errorf("the repository of %s is not applied: the ConfigMap says %q", tenant, got)
		}
		if got := r.field(tenant, "resourcequota/bounds", ".metadata.name"); got != "bounds" {
			t.Errorf("%s lacks the quota that every tenant has", tenant)
		}
	}
	for path, want := range map[string]string{"mail .data.password": "t0ken-of-mail", "maps .data.bearerToken": "t0ken-of-maps"} {
		tenant, field, _ := strings.Cut(path, " ")
		plain, err := base64.StdEncoding.DecodeString(r.field(tenant, "secret/"+tenant+"-auth", field))
		if err != nil || string(plain) != want {
			t.Errorf("the credentials of %s are decrypted to %q, %v, want %q", tenant, plain, err, want)
		}
	}

	// What waits for Flux is tried as one tenant of a shape, which is one of the example's own.
	var want []string
	through, report := tryAttacks(r, func(a catalog.Attack) bool {
		if !a.Deep && slices.Contains(plain, a.Key()) {
			want = append(want, a.Key())
		}
		return !a.Deep
	})
	slices.Sort(want)
	want = slices.Compact(want)
	if diff := cmp.Diff(want, through); diff != "" {
		t.Errorf("the new tenants can do what the others cannot (-others +new):\n%s", diff)
	}
	if !slices.ContainsFunc(report.Results, func(result catalog.Result) bool {
		return slices.Contains([]string{"search", "mail", "maps"}, result.Tenant)
	}) {
		t.Log("the new tenants have the shape of the others, which stand for them")
	}

	t.Run("Refused", func(t *testing.T) { testTenantRefused(r.with(t), e) })
	t.Run("Goes", func(t *testing.T) { testTenantGoes(r.with(t), e) })
}

// testTenantRefused adds a tenant whose source a policy refuses, and another one. It checks
// that the first tenant's Kustomization shows the refusal, that the refusal blocks no other
// tenant, and that it ends with the tenant.
func testTenantRefused(r run, e example) {
	e.onboard(r.t, "", "lost", "--git-url", "https://git.example.com/others/lost")
	e.onboard(r.t, "", "late")
	edit(r.t, "interval: 1m", "interval: 3m", e.platform, "tenants", "base", "search", "sync.yaml")
	testwait.For(r.t, "a new tenant and a change of an old one to be applied beside one that is refused", patience, func() (bool, string) {
		delivered, interval := r.field("late", "configmap/delivered", ".data.by"), r.field("search", "gitrepo/search", ".spec.interval")
		return delivered == "the team" && interval == "3m", fmt.Sprintf("late has %q, search has the interval %q", delivered, interval)
	})
	r.until("Kustomization/flux-system/tenant-lost", "to say what is refused", func(row flux.Row) bool {
		return row.State == flux.Failed && strings.Contains(row.Message, "not at https://git.example.com/others/lost")
	})
	if row, _ := r.row("Kustomization/flux-system/tenants"); row.State != flux.Ready {
		r.t.Errorf("the tenants are not ready because of one: %s %q", row.Ready, row.Message)
	}
	e.tenure(r.t, "", "delete", "tenant", "lost")
	r.until("Kustomization/flux-system/tenant-lost", "to be ready without its source", func(row flux.Row) bool { return row.State == flux.Ready })
	e.tenure(r.t, "", "delete", "tenant", "lost")
	r.kubectl("", "-n", "flux-system", "wait", "--for=delete", "kustomization/tenant-lost", atMost)
	r.kubectl("", "wait", "--for=delete", "namespace/lost", atMost)
}

// testTenantGoes deletes a tenant with a Helm release. It checks that after the first commit
// Flux has deleted all objects that the tenant delivered, that after the second one the
// namespaces are deleted, and that Flux gave up no object on the way.
func testTenantGoes(r run, e example) {
	e.tenure(r.t, "", "delete", "tenant", "dev-team")
	testwait.For(r.t, "what dev-team delivered to go", patience, func() (bool, string) {
		left := r.kubectl("", "-n", "apps", "get", "ks,hr,gitrepo,helmcharts,helmrepo,deployments,pods", "-o", "name") +
			r.kubectl("", "-n", "apps-preview", "get", "ks,hr,deployments,pods", "-o", "name")
		return left == "", left
	})
	if got := r.field("apps", "serviceaccount/dev-team", ".metadata.name"); got != "dev-team" {
		r.t.Error("the account went with the Kustomization that needs it")
	}
	e.tenure(r.t, "", "delete", "tenant", "dev-team")
	r.kubectl("", "wait", "--for=delete", "namespace/apps", "namespace/apps-preview", atMost)
	for _, controller := range []string{"kustomize-controller", "helm-controller"} {
		for line := range strings.Lines(r.kubectl("", "-n", "flux-system", "logs", "deployment/"+controller)) {
			if strings.Contains(line, `"namespace":"apps`) && (strings.Contains(line, "unable to prune") || strings.Contains(line, "skipping Helm release uninstallation")) {
				r.t.Errorf("%s gave something up: %s", controller, line)
			}
		}
	}
	r.until("Kustomization/flux-system/tenants", "to be ready without the tenant", func(row flux.Row) bool { return row.State == flux.Ready })
	if _, err := os.Stat(filepath.Join(e.platform, "tenants", "base", "dev-team")); err == nil {
		r.t.Error("the tenant's folder is still there")
	}
}
