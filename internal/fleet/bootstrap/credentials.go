package bootstrap

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/internal/fleet/secrets/gitauth"
	"github.com/tenure-dev/tenure/internal/flux"
)

// giveCredentials writes the Secret with which the cluster reads the repository. It keeps an
// existing key, which the Git host may already have.
func (b *bootstrapper) giveCredentials(ctx context.Context) error {
	var live corev1.Secret
	err := b.kube.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: b.SecretName}, &live)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot read the Secret %s/%s: %w", Namespace, b.SecretName, err)
	}
	there := !apierrors.IsNotFound(err)
	c := b.Credentials
	if len(c.KnownHosts) > 0 && c.Key == nil {
		pair, err := b.keyPair(live.Data)
		if err != nil {
			return err
		}
		c.Key, b.newKey = &pair, string(pair.Public)
	}
	secret := c.Secret(Namespace, b.SecretName, nil)
	data, _ := secret["stringData"].(map[string]any)
	same := there && len(data) == len(live.Data)
	encoded := map[string]any{}
	for _, key := range slices.Sorted(maps.Keys(data)) {
		value, _ := data[key].(string)
		same = same && string(live.Data[key]) == value
		encoded[key] = base64.StdEncoding.EncodeToString([]byte(value))
	}
	if same {
		return nil
	}
	// The values are encoded here, because applied stringData cannot be removed again.
	delete(secret, "stringData")
	secret["data"] = encoded
	if err := b.clearSecret(ctx, there, live, encoded); err != nil {
		return err
	}
	if err := flux.ApplyManifests(ctx, b.config, []*unstructured.Unstructured{{Object: secret}}); err != nil {
		return fmt.Errorf("cannot write the credentials: %w", err)
	}
	return nil
}

// clearSecret removes obsolete keys from the Secret, whichever client wrote them: a source refuses
// a Secret with two kinds of credentials.
func (b *bootstrapper) clearSecret(ctx context.Context, there bool, live corev1.Secret, wanted map[string]any) error {
	before := live.DeepCopy()
	for key := range before.Data {
		if _, ok := wanted[key]; !ok {
			delete(live.Data, key)
		}
	}
	if !there || len(live.Data) == len(before.Data) {
		return nil
	}
	if err := b.kube.Patch(ctx, &live, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("cannot write the credentials: %w", err)
	}
	return nil
}

// keyPair returns the key pair in the cluster, or a new one.
func (b *bootstrapper) keyPair(live map[string][]byte) (gitauth.KeyPair, error) {
	if private := live["identity"]; len(private) > 0 {
		pair, err := gitauth.ParseKey(private, string(live["password"]))
		if err != nil {
			return pair, fmt.Errorf("cannot use the key in the Secret %s/%s: %w", Namespace, b.SecretName, err)
		}
		if public := live["identity.pub"]; len(public) > 0 {
			pair.Public = public
		}
		return pair, nil
	}
	return gitauth.Generate(b.Key)
}

// tellKey passes the public key on, for the Git host to grant it access.
func (b *bootstrapper) tellKey(ctx context.Context) error {
	if b.newKey == "" {
		return nil
	}
	// The cluster reads with the credentials from before this run, so the address must
	// be the same too.
	reads := b.live.source != nil && text(b.live.source, "spec", "url") == b.URL && ready(b.live.source)
	return b.DeployKey(ctx, b.newKey, reads)
}

func ready(o *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(map[string]any)
		return condition["type"] == "Ready" && condition["status"] == "True"
	})
}
