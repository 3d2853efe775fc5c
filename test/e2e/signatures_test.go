package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/internal/localcluster/network"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
)

// The fleet of TestSignedSources demands signatures of all sources, and has a Tenant that
// delivers from Git and from an OCI registry. No artifact has a signature of the key for artifacts.
const (
	signedProfile = `apiVersion: tenure.dev/v1alpha1
kind: TenancyProfile
metadata: {name: default}
spec:
  tenants:
    sources: {oci: ["oci://oci.example.com/acme/*"]}
    signatures:
      git: {mode: HEAD}
      oci: {providers: [cosign]}
      keys:
        cosign: {release.pub: %q}
        git: {alice.asc: %q}
`
	signedTenant = `apiVersion: tenure.dev/v1alpha1
kind: Tenant
metadata: {name: signed}
spec:
  namespaces: {create: [signed-apps]}
  sync:
    - {name: app, git: {url: "https://git.example.com/acme/signed"}}
    - {name: images, oci: {url: "oci://oci.example.com/acme/unsigned", tag: v1}}
`
)

// signer makes an OpenPGP key. It is not RSA: see makeKeys.
func signer(t *testing.T, name string) (entity *openpgp.Entity, public string) {
	t.Helper()
	entity, err := openpgp.NewEntity(name, "", name+"@example.com", &packet.Config{Algorithm: packet.PubKeyAlgoEdDSA, Curve: packet.Curve25519})
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	w, err := armor.Encode(&text, openpgp.PublicKeyType, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := entity.Serialize(w); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return entity, text.String()
}

// commitSigned commits all files of a folder, with a signature if there is a signer.
func commitSigned(t *testing.T, dir string, by *openpgp.Entity) {
	t.Helper()
	git(t, dir, "add", "-A")
	if by == nil {
		git(t, dir, "commit", "-qm", "unsigned")
		return
	}
	git(t, dir, "commit", "-qm", "signed")
	content := git(t, dir, "cat-file", "commit", "HEAD") + "\n"
	var signature bytes.Buffer
	if err := openpgp.ArmoredDetachSign(&signature, by, strings.NewReader(content), nil); err != nil {
		t.Fatal(err)
	}
	header, message, _ := strings.Cut(content, "\n\n")
	lines := strings.ReplaceAll(strings.TrimSpace(signature.String()), "\n", "\n ")
	cmd := exec.CommandContext(t.Context(), "git", "-C", dir, "hash-object", "-t", "commit", "-w", "--stdin")
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_SYSTEM="+os.DevNull)
	cmd.Stdin = strings.NewReader(header + "\ngpgsig " + lines + "\n\n" + message)
	id, err := cmd.Output()
	if err != nil {
		t.Fatalf("cannot write the signed commit: %v", err)
	}
	git(t, dir, "update-ref", "HEAD", strings.TrimSpace(string(id)))
}

// TestSignedSources shows that Flux verifies the signatures that the rules demand: it delivers a commit
// that the platform's key signed, but no unsigned commit, no commit of another signer, and no artifact
// without a signature. The manager writes the verification into a Tenant's sync.
func TestSignedSources(t *testing.T) {
	t.Parallel()
	alice, public := signer(t, "alice")
	mallory, _ := signer(t, "mallory")
	_, forArtifacts := cosignKey(t)
	dir, _ := newFleet(t, map[string]string{
		"clusters/test/tenure.yaml":           tenureSync,
		"clusters/test/apps.yaml":             tenantsSync,
		"infrastructure/tenure/crds.yaml":     string(config.CRDs()),
		"infrastructure/tenure/roles.yaml":    string(config.Roles()),
		"infrastructure/tenure/policies.yaml": string(config.Policies()),
		"infrastructure/tenure/manager.yaml":  string(config.Manager()),
		"infrastructure/tenure/profile.yaml":  fmt.Sprintf(signedProfile, forArtifacts, public),
		"tenants/signed.yaml":                 signedTenant,
	})
	app := t.TempDir()
	git(t, app, "init", "-q", "-b", "main")
	deliver := func(value string, by *openpgp.Entity) {
		t.Helper()
		write(t, configMap("delivered", value), app, "app.yaml")
		commitSigned(t, app, by)
	}
	deliver("first", alice)
	unsigned := newFolder(t, map[string]string{"app.yaml": configMap("from-oci", "one")})
	r, failed := start(t, localcluster.Options{Fleet: dir, Path: "clusters/test", Maps: append(parseMaps(t, "https://git.example.com/acme/signed="+app),
		network.Map{Kind: network.KindOCI, URL: "oci://oci.example.com/acme/unsigned:v1", Dir: unsigned})})
	for _, ref := range []string{"GitRepository/signed-apps/app", "Kustomization/signed-apps/app", "Kustomization/flux-system/tenants"} {
		if why, is := failed[ref]; is {
			t.Errorf("%s failed: %s", ref, why)
		}
	}
	says := func(source, status, message string) {
		t.Helper()
		testwait.For(t, "Flux to say of "+source+" that "+message, patience, func() (bool, string) {
			got := r.field("signed-apps", source, `.status.conditions[?(@.type=="SourceVerified")]`)
			return strings.Contains(got, message) && strings.Contains(got, fmt.Sprintf("%q", status)), got
		})
	}
	delivered := func(value string) {
		t.Helper()
		testwait.For(t, value+" to be delivered", patience, func() (bool, string) {
			got := r.field("signed-apps", "configmap/delivered", ".data.value")
			return got == value, got
		})
	}
	delivered("first")
	says("gitrepository/app", "True", "verified signature of")
	says("ocirepository/images", "False", "no matching signatures were found")

	for value, by := range map[string]*openpgp.Entity{"unsigned": nil, "of a stranger": mallory} {
		deliver(value, by)
		head := git(t, app, "rev-parse", "HEAD")
		says("gitrepository/app", "False", head)
		if got := r.field("signed-apps", "configmap/delivered", ".data.value"); got != "first" {
			t.Errorf("%s is delivered: %s", head, got)
		}
	}
	deliver("second", alice)
	delivered("second")
	says("gitrepository/app", "True", "verified signature of")
}
