package catalog

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/fleet/secrets/sops"
	"github.com/tenure-dev/tenure/internal/flux"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// decryptionKeyMissing matches the message of kustomize-controller if none of its keys decrypts a file.
var decryptionKeyMissing = regexp.MustCompile(`cannot get sops data key|no identity matched any of the recipients`)

// noKeyControl is the control that stops a tenant without the key.
const noKeyControl = "keys per tenant"

// globalKeyFlag names a Secret whose keys kustomize-controller uses for Kustomizations
// without keys of their own.
const globalKeyFlag = "--sops-age-secret"

func addSharedDecryptionKey(register func(...Attack)) {
	attack := Attack{
		ID: "S10", Via: Git,
		Kinds:      []string{"Kustomization"},
		Title:      "decrypts other tenants' secrets with the controller-wide key",
		Controls:   []string{"keys per tenant, no controller-wide key"},
		References: []string{"kustomize-controller: controller global decryption"},
		Fix:        Fix{Advice: "start kustomize-controller without --sops-age-secret, and give each tenant its own decryption key in its namespace (spec.decryption.secretRef)"},
		Deep:       true,
		Run: func(ctx context.Context, e *Scenario) Finding {
			return e.decrypts(ctx, "S10-git", []string{""})
		},
	}
	attack.Files = func(e *Scenario) map[string]string { return e.sealedFiles("S10-git") }
	register(attack)
	attack.Kind = "shared"
	attack.Files = func(e *Scenario) map[string]string {
		files := e.sealedFiles("S10-git-shared")
		if files != nil {
			maps.Copy(files, e.variableFiles())
		}
		return files
	}
	attack.Title = "decrypts other tenants' secrets with the key that Flux uses for its manifests, or reads in variables a Secret with values of others"
	attack.Controls = []string{noKeyControl, noVariableControl}
	attack.Fix = Fix{Advice: "give each tenant a decryption key that nobody else has, and encrypt the others' secrets again; name in spec.postBuild.substituteFrom of a sync that delivers a tenant only Secrets with the values of this tenant"}
	attack.Run = func(ctx context.Context, e *Scenario) Finding {
		f := e.decryptsWithOwn(ctx)
		if f.Outcome != Stopped {
			return f
		}
		return e.readsVariables(ctx, f)
	}
	register(attack)
}

// decryptionKey is a public key, and the Secret that holds the private key.
type decryptionKey struct {
	secret client.ObjectKey
	// recipient is the age recipient, or the fingerprint of an OpenPGP key.
	recipient string
	// pgp is the public part of an OpenPGP key; nil for an age key.
	pgp *openpgp.Entity
	// unusable is the name of the field in the Secret, for a key that cannot be used here: a credential of
	// a key service, or a key that cannot be parsed.
	unusable string
}

// decryptsWithOwn tries the keys with which Flux decrypts the tenant's manifests.
func (e *Scenario) decryptsWithOwn(ctx context.Context) Finding {
	keys, err := e.ownKeys(ctx)
	if err != nil {
		return notProven(firstLine(err.Error()))
	}
	secrets := []string{}
	for _, k := range keys {
		if !slices.Contains(secrets, k.secret.Name) {
			secrets = append(secrets, k.secret.Name)
		}
	}
	if len(secrets) > 0 {
		return e.decrypts(ctx, "S10-git-shared", secrets)
	}
	if err := identityWorks(ctx, e); err != nil {
		return notProven("the tenant cannot do anything here: " + firstLine(err.Error()))
	}
	return stopped(noKeyControl, "the tenant has no decryption key")
}

// appliesTenant reports whether a Kustomization applies manifests of the tenant: it is in a namespace of
// the tenant, or delivers a repository of the tenant from a namespace of the platform.
func (e *Scenario) appliesTenant(sync client.ObjectKey) bool {
	return slices.Contains(e.Tenant.Namespaces, sync.Namespace) || slices.ContainsFunc(e.Tenant.Deliveries(), func(r discovery.Repository) bool {
		return r.Kustomization.Namespace == sync.Namespace && r.Kustomization.Name == sync.Name
	})
}

// deliversFrom returns the namespace in which Kustomizations apply the tenant's commits: the namespace of
// the tenant's sync if the platform delivers it, as for the attacks (see [Scenario.delivering]), and
// otherwise the tenant's own namespace.
func (e *Scenario) deliversFrom() string {
	if e.Repository != nil && e.platformDelivers() {
		return e.Repository.Kustomization.Namespace
	}
	return e.Namespace
}

// ownKeys returns the keys with which Flux decrypts the tenant's manifests.
func (e *Scenario) ownKeys(ctx context.Context) ([]decryptionKey, error) {
	return e.keys(ctx, func(sync client.ObjectKey) bool { return sync.Namespace == e.deliversFrom() && e.appliesTenant(sync) })
}

// kustomizations returns all Kustomizations of the cluster.
func (e *Scenario) kustomizations(ctx context.Context) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(flux.Kustomization.GroupVersionKind())
	if err := e.Admin.List(ctx, list); err != nil {
		return nil, fmt.Errorf("cannot list the Kustomizations: %w", err)
	}
	return list.Items, nil
}

// keys returns the keys with which Flux decrypts for the Kustomizations that the function of selects.
func (e *Scenario) keys(ctx context.Context, of func(sync client.ObjectKey) bool) ([]decryptionKey, error) {
	syncs, err := e.kustomizations(ctx)
	if err != nil {
		return nil, err
	}
	var keys []decryptionKey
	for _, u := range syncs {
		secret, _, _ := unstructured.NestedString(u.Object, "spec", "decryption", "secretRef", "name")
		if secret == "" || !of(client.ObjectKeyFromObject(&u)) {
			continue
		}
		more, err := e.keysOf(ctx, client.ObjectKey{Namespace: u.GetNamespace(), Name: secret})
		if err != nil {
			return nil, err
		}
		keys = append(keys, more...)
	}
	return keys, nil
}

// keysOf returns the public parts of the keys in a Secret, and none if the Secret does not exist.
// kustomize-controller distinguishes age keys, OpenPGP keys and credentials of key services by the names of
// the fields.
func (e *Scenario) keysOf(ctx context.Context, secret client.ObjectKey) ([]decryptionKey, error) {
	s := &corev1.Secret{}
	err := e.Admin.Get(ctx, secret, s)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the keys of %s: %w", secret, err)
	}
	var keys []decryptionKey
	for field, value := range s.Data {
		var found []decryptionKey
		switch {
		case strings.HasSuffix(field, ".agekey"):
			found = ageKeys(value)
		case strings.HasSuffix(field, ".asc"):
			found = pgpKeys(value)
		case !strings.HasPrefix(field, "sops."):
			continue
		}
		if len(found) == 0 {
			found = []decryptionKey{{unusable: field}}
		}
		for _, k := range found {
			k.secret = secret
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b decryptionKey) int {
		return cmp.Or(cmp.Compare(a.recipient, b.recipient), cmp.Compare(a.unusable, b.unusable))
	})
	return keys, nil
}

// ageKeys returns the public parts of age keys. It drops errors, which would quote a key.
func ageKeys(file []byte) []decryptionKey {
	var keys []decryptionKey
	identities, _ := age.ParseIdentities(bytes.NewReader(file))
	for _, identity := range identities {
		switch x := identity.(type) {
		case *age.X25519Identity:
			keys = append(keys, decryptionKey{recipient: x.Recipient().String()})
		case *age.HybridIdentity:
			keys = append(keys, decryptionKey{recipient: x.Recipient().String()})
		}
	}
	return keys
}

// pgpKeys returns the public parts of OpenPGP keys.
func pgpKeys(armored []byte) []decryptionKey {
	var keys []decryptionKey
	entities, _ := openpgp.ReadArmoredKeyRing(bytes.NewReader(armored))
	for _, entity := range entities {
		entity.PrivateKey = nil
		for i := range entity.Subkeys {
			entity.Subkeys[i].PrivateKey = nil
		}
		keys = append(keys, decryptionKey{recipient: sops.Fingerprint(entity), pgp: entity})
	}
	return keys
}

// recipients returns the recipients for which the canary is encrypted.
func recipients(keys []decryptionKey) sops.Recipients {
	var to sops.Recipients
	for _, k := range keys {
		switch {
		case k.pgp != nil:
			to.PGP = append(to.PGP, k.pgp)
		case k.unusable == "":
			to.Age = append(to.Age, k.recipient)
		}
	}
	return to
}

// unusableIn returns the first key that cannot be used here, as text, or "".
func unusableIn(keys []decryptionKey) string {
	for _, k := range keys {
		if k.unusable != "" {
			return fmt.Sprintf("%s in Secret %s", k.unusable, k.secret)
		}
	}
	return ""
}

// sealed returns the manifest of an object with data that are encrypted for keys.
func sealed(u *unstructured.Unstructured, to sops.Recipients) (string, error) {
	content, err := sops.Encrypt([]byte(manifest(u)), to, sealedFields, time.Now())
	return string(content), err
}

// sealedFields matches the fields with the values of ConfigMaps and Secrets.
var sealedFields = regexp.MustCompile("^(data|stringData)$")

// foreignKeys returns the keys of the controller, of the platform and of other tenants.
func (e *Scenario) foreignKeys(ctx context.Context) ([]decryptionKey, error) {
	keys, err := e.keys(ctx, func(sync client.ObjectKey) bool { return !e.appliesTenant(sync) })
	if err != nil {
		return nil, err
	}
	args, err := e.arguments(ctx, "kustomize-controller")
	if err != nil {
		return nil, err
	}
	if secret := lastValue(args, globalKeyFlag); secret != "" {
		more, err := e.keysOf(ctx, client.ObjectKey{Namespace: e.Platform, Name: secret})
		if err != nil {
			return nil, err
		}
		keys = append(keys, more...)
	}
	return keys, nil
}

// sealPatience is the maximum duration of the search for keys.
const sealPatience = 30 * time.Second

// sealedFiles returns a canary and the positive control. The canary is encrypted for all foreign keys and
// for one unknown key, so that a canary always exists. The positive control is encrypted for the tenant's
// own keys, or not encrypted if the tenant has none.
func (e *Scenario) sealedFiles(id string) map[string]string {
	ctx, cancel := context.WithTimeout(context.Background(), sealPatience)
	defer cancel()
	nobody, err := age.GenerateX25519Identity()
	if err != nil {
		return nil
	}
	foreign, err := e.foreignKeys(ctx)
	if err != nil {
		return nil
	}
	own, err := e.ownKeys(ctx)
	if err != nil {
		return nil
	}
	to := recipients(foreign)
	to.Age = append(to.Age, nobody.Recipient().String())
	aimed, err := sealed(configMap(e.Namespace, name(id)), to)
	if err != nil {
		return nil
	}
	files := map[string]string{"aimed/canary.yaml": aimed, "own/canary.yaml": manifest(configMap(e.Namespace, name(id+"-own")))}
	if mine := recipients(own); !mine.Empty() {
		if files["own/canary.yaml"], err = sealed(configMap(e.Namespace, name(id+"-own")), mine); err != nil {
			return nil
		}
	}
	return files
}

// decrypts tries to decrypt the canary with each of the tenant's Secrets; an empty name stands for no
// Secret. The attack is stopped if Flux lacks the key, and the tenant's own key, if there is one, decrypts
// the positive control.
func (e *Scenario) decrypts(ctx context.Context, id string, secrets []string) Finding {
	foreign, err := e.foreignKeys(ctx)
	if err != nil {
		return notProven(firstLine(err.Error()))
	}
	own, err := e.ownKeys(ctx)
	if err != nil {
		return notProven(firstLine(err.Error()))
	}
	if e, err = e.delivering(ctx); err != nil {
		return notProven(firstLine(err.Error()))
	}
	with := func(secret string) func(map[string]any) {
		return func(spec map[string]any) {
			e.asItSyncs(spec)
			decryption := map[string]any{"provider": "sops"}
			if secret != "" {
				decryption["secretRef"] = map[string]any{"name": secret}
			}
			spec["decryption"] = decryption
		}
	}
	canary, control := configMap(e.Namespace, name(id)), configMap(e.Namespace, name(id+"-own"))
	var f Finding
	for _, secret := range secrets {
		if f = e.opens(ctx, id, canary, with(secret), decryptionConfig(secret, foreign, own)); f.Outcome != Stopped {
			return f
		}
	}
	if mine, theirs := unusableIn(own), unusableIn(foreign); mine != "" && theirs != "" {
		return notProven(fmt.Sprintf("it is unknown here whether %s opens the same files as %s", mine, theirs))
	}
	change := e.asItSyncs
	if i := slices.IndexFunc(own, func(k decryptionKey) bool { return k.unusable == "" }); i >= 0 {
		change = with(own[i].secret.Name)
	}
	defer e.remove(control)
	return e.positiveControl(ctx, f, e.kustomization(id+"-own", folder(id)+"/own", change), isReady)
}

// opens makes Flux apply the canary of an attack, and returns the finding.
func (e *Scenario) opens(ctx context.Context, id string, canary *unstructured.Unstructured, change func(map[string]any), evidence string) Finding {
	if there, err := e.exists(ctx, canary); err != nil || there {
		return notProven(fmt.Sprintf("the canary %s cannot be distinguished from an existing object (%v)", keyOf(canary), err))
	}
	var touched bool
	var lookErr error
	said, err := e.apply(ctx, e.kustomization(id, folder(id)+"/aimed", change), func() { touched, lookErr = e.exists(ctx, canary) })
	switch {
	case lookErr != nil:
		return notProven("cannot read the canary: " + firstLine(lookErr.Error()))
	case touched:
		e.remove(canary)
		return gotThrough(evidence)
	case err != nil:
		return judge(err, "")
	case said.ready == "False" && decryptionKeyMissing.MatchString(said.message):
		return stopped(noKeyControl, firstLine(said.message))
	}
	return notProven("the answer is neither a success nor a known refusal: " + firstLine(said.message))
}

// decryptionConfig returns the owner of the key that decrypts the canary with a Secret of the tenant, or
// without a Secret.
func decryptionConfig(secret string, foreign, own []decryptionKey) string {
	if secret == "" {
		return "Flux decrypted for it what was encrypted for a key of all of kustomize-controller (" + globalKeyFlag + ")"
	}
	for _, mine := range own {
		for _, other := range foreign {
			if mine.secret.Name == secret && mine.secret == other.secret {
				return fmt.Sprintf("Flux decrypted for it a file that was encrypted for the key in Secret %s, with which it decrypts for others, too", other.secret)
			}
			if mine.secret.Name == secret && mine.recipient == other.recipient {
				return fmt.Sprintf("Flux decrypted for it a file that was encrypted for the key in Secret %s, which is also in Secret %s", other.secret, mine.secret)
			}
		}
	}
	return "Flux decrypted for it, with Secret " + secret + ", what was encrypted for others"
}
