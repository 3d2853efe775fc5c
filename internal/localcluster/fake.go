package localcluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"filippo.io/age"
	"github.com/tenure-dev/tenure/internal/flux"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Fake is a part of the fleet with an invented content.
type Fake struct {
	// Text describes the invented content and the object that needs it.
	Text string
	// Content reports whether the invented content gets into the objects of the fleet, so that
	// nothing about them is proven.
	Content bool
	// Assumed reports that Text names an object of the fleet about which the cluster assumes
	// something, and that nothing is invented.
	Assumed bool
}

// Fakes returns the objects and values that the cluster has invented so far, in order.
func (c *Cluster) Fakes() []Fake {
	c.fakesMu.Lock()
	defer c.fakesMu.Unlock()
	return slices.Clone(c.fakes)
}

// addFake stores and reports an invention.
func (c *Cluster) addFake(f Fake) {
	c.fakesMu.Lock()
	c.fakes = append(c.fakes, f)
	c.fakesMu.Unlock()
	if !f.Assumed {
		c.opts.Report(errors.New("invented: " + f.Text))
	}
}

// fakeSecrets makes the Secrets that objects of Flux lack until the cluster ends. It waits for
// the failure of an object, since the fleet may have the Secret.
func (c *Cluster) fakeSecrets(kube client.WithWatch) error {
	kinds, retried := lackingKinds(), map[flux.Ref]bool{}
	return flux.Watch(c.life, kube, flux.Selection{Kinds: kinds}, func(rows []flux.Row) error {
		for _, row := range rows {
			if !lacksSecret(row) {
				continue
			}
			if err := c.fakeFor(c.life, kube, row.Ref(), retried); err != nil && c.life.Err() == nil {
				c.report(fmt.Errorf("cannot invent a Secret for %s: %w", row.Ref(), err))
			}
		}
		return nil
	})
}

// lackingKinds returns the kinds whose objects may lack a Secret: those of Flux, and a ResourceSet, which
// copies Secrets.
func lackingKinds() []flux.Kind { return append(flux.AllKinds(), flux.ResourceSet) }

// lacksSecret reports whether the message of an object may be about a missing Secret.
func lacksSecret(row flux.Row) bool {
	text := strings.ToLower(row.Message)
	return row.State != flux.Ready && row.State != flux.Suspended && strings.Contains(text, "secret") &&
		(strings.Contains(text, "not found") || strings.Contains(text, "could not find"))
}

// fakeFor makes the missing Secrets of an object, and requests its reconciliation. An object whose
// Secrets were made for others is reconciled once, since Flux may try it at its next interval only.
func (c *Cluster) fakeFor(ctx context.Context, kube client.Client, ref flux.Ref, retried map[flux.Ref]bool) error {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(ref.Kind.GroupVersionKind())
	if err := kube.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, object); err != nil {
		return client.IgnoreNotFound(err)
	}
	data := map[types.NamespacedName]map[string]string{}
	purposes := map[types.NamespacedName]flux.Purpose{}
	for _, use := range flux.SecretUses(object) {
		content, err := c.invent(use)
		if err != nil {
			return err
		}
		key := types.NamespacedName{Namespace: use.Namespace, Name: use.Name}
		if data[key] == nil {
			data[key] = map[string]string{}
		}
		maps.Copy(data[key], content)
		purposes[key] = use.Purpose
	}
	made := false
	for _, key := range slices.SortedFunc(maps.Keys(data), func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) }) {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, StringData: data[key]}
		if purposes[key] == flux.ForRegistry {
			secret.Type = corev1.SecretTypeDockerConfigJson
		}
		_, err := c.client.CoreV1().Secrets(key.Namespace).Create(ctx, secret, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			continue
		}
		if err != nil {
			return err
		}
		made = true
		c.addFake(Fake{
			Text:    fmt.Sprintf("Secret %s (%s) for %s; its content is not proven", key, purposes[key], ref),
			Content: purposes[key].IsContent(),
		})
	}
	if !made && retried[ref] {
		return nil
	}
	retried[ref] = true
	return flux.RequestReconcile(ctx, kube, ref)
}

// invent returns the data of a Secret for a use.
func (c *Cluster) invent(use flux.SecretUse) (map[string]string, error) {
	switch use.Purpose {
	case flux.ForGit:
		data := map[string]string{}
		credentials, err := c.credentials(use.URL)
		for key, value := range credentials {
			data[key] = fmt.Sprint(value)
		}
		return data, err
	case flux.ForRegistry:
		return dockerConfig(use.URL)
	case flux.ForBucket:
		return map[string]string{"accesskey": "invented", "secretkey": "invented"}, nil
	case flux.ForDecryption:
		key, err := age.GenerateX25519Identity()
		if err != nil {
			return nil, fmt.Errorf("cannot make a key: %w", err)
		}
		return map[string]string{"invented.agekey": key.String()}, nil
	case flux.ForVariables, flux.ForCopy:
		return c.inventVariables(), nil
	case flux.ForValues:
		if use.Target == "" {
			return map[string]string{use.Key: "{}"}, nil
		}
		return map[string]string{use.Key: inventValue(use.Target)}, nil
	case flux.ForToken:
		return map[string]string{"token": "invented"}, nil
	}
	return map[string]string{"username": "invented", "password": "invented"}, nil
}

// dockerConfig returns the data of a Secret of type kubernetes.io/dockerconfigjson.
func dockerConfig(address string) (map[string]string, error) {
	host := strings.TrimPrefix(address, "oci://")
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		host = u.Host
	}
	host, _, _ = strings.Cut(host, "/")
	config, err := json.Marshal(map[string]any{"auths": map[string]any{host: map[string]string{"username": "invented", "password": "invented"}}})
	if err != nil {
		return nil, fmt.Errorf("cannot make credentials of a registry: %w", err)
	}
	return map[string]string{corev1.DockerConfigJsonKey: string(config)}, nil
}

// inventedValues are values by a part of the name of a key, for fields that are not any text.
var inventedValues = []struct{ part, value string }{
	{"cidr", "192.0.2.0/24"}, {"subnet", "192.0.2.0/24"}, {"email", "invented@example.com"}, {"url", "https://invented.example.com"},
	{"domain", "invented.example.com"}, {"host", "invented.example.com"}, {"port", "8080"}, {"ipaddress", "192.0.2.1"}, {"_ip", "192.0.2.1"}, {"_addr", "192.0.2.1"},
}

// inventValue returns a value for a key, by the key's name.
func inventValue(key string) string {
	key = strings.ToLower(key)
	for _, candidate := range inventedValues {
		if strings.Contains(key, candidate.part) {
			return candidate.value
		}
	}
	return "invented"
}
