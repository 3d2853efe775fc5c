package server

import (
	"bytes"
	"crypto/x509"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/process/certs"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

var installed sync.Once

// install puts the proxy's account and rights into the shared cluster.
func install(t *testing.T, admin *rest.Config) {
	t.Helper()
	installed.Do(func() {
		objects, err := flux.ReadObjects(append([]byte("{apiVersion: v1, kind: Namespace, metadata: {name: flux-system}}\n---\n"), config.Proxy()...))
		if err != nil {
			t.Fatal(err)
		}
		wanted := slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Deployment" })
		if err := flux.ApplyManifests(t.Context(), admin, wanted); err != nil {
			t.Fatal(err)
		}
	})
}

// TestKept checks that two replicas with the rights of config/proxy share one certificate,
// which the authorities in the ConfigMap verify.
func TestKept(t *testing.T) {
	t.Parallel()
	c := testcluster.Shared(t)
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	admin, err := client.New(c.REST, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	install(t, c.REST)
	lowest := rest.CopyConfig(c.REST)
	lowest.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:flux-system:tenure-proxy", Groups: []string{"system:authenticated"}}
	o := Options{Namespace: "flux-system", TLSSecret: "tenure-proxy-own", TLSTrust: "tenure-proxy-ca", TLSHosts: []string{"tenure-proxy.flux-system.svc"}}
	var served [][]byte
	for range 2 {
		k, err := o.keeper(lowest)
		if err != nil {
			t.Fatal(err)
		}
		keep(t, k)
		pair, err := k.Certificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		served = append(served, pair.Certificate[0])
	}
	if !bytes.Equal(served[0], served[1]) {
		t.Error("the replicas serve different certificates")
	}
	trusted := &corev1.ConfigMap{}
	if err := admin.Get(t.Context(), client.ObjectKey{Namespace: "flux-system", Name: "tenure-proxy-ca"}, trusted); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(trusted.Data["ca.crt"]))
	leaf, err := x509.ParseCertificate(served[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{DNSName: o.TLSHosts[0], Roots: roots}); err != nil {
		t.Errorf("who reads the ConfigMap does not trust the proxy: %v", err)
	}

	// The proxy corrects wrong authorities in the ConfigMap.
	trusted.Data = map[string]string{"ca.crt": "somebody else"}
	if err := admin.Update(t.Context(), trusted); err != nil {
		t.Fatal(err)
	}
	k, err := o.keeper(lowest)
	if err != nil {
		t.Fatal(err)
	}
	keep(t, k)
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(trusted), trusted); err != nil || !roots.AppendCertsFromPEM([]byte(trusted.Data["ca.crt"])) {
		t.Errorf("whom to trust is not corrected: %v %v", trusted.Data, err)
	}
}

// keep calls Keep until it succeeds: new rights take a moment.
func keep(t *testing.T, k *certs.Keeper) {
	t.Helper()
	testwait.For(t, "the certificate", patience, func() (bool, string) {
		err := k.Keep(t.Context())
		if err != nil {
			return false, err.Error()
		}
		return true, ""
	})
}
