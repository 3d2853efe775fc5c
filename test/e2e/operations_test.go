package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// checksItself runs the CronJob of the check at once, and waits until its Job has the condition and
// its log the text.
func (r run) checksItself(reason, condition, text string) {
	r.t.Helper()
	name := "check-" + strings.ToLower(condition)
	r.kubectl("", "-n", "flux-system", "create", "job", "--from=cronjob/tenure-check", name)
	var ended string
	testwait.For(r.t, reason+": the Job to end", patience, func() (bool, string) {
		ended = r.field("flux-system", "job/"+name, ".status.conditions")
		return strings.Contains(ended, `"type":"Complete"`) || strings.Contains(ended, `"type":"Failed"`), ended
	})
	log, err := kubectl(r.t, r.Cluster, "", "-n", "flux-system", "logs", "job/"+name)
	if err != nil || !strings.Contains(ended, `"type":"`+condition+`"`) || !strings.Contains(log, text) {
		r.t.Errorf("%s: want the Job to be %s and to log %q, got %s, %v\n%s", reason, condition, text, ended, err, log)
	}
}

// drains drains the only node of the programs of Tenure. Their disruption budgets let one replica go,
// which finds no other node, and keep the other.
func (r run) drains() {
	r.t.Helper()
	node := r.kubectl("", "get", "nodes", "-o", "jsonpath={.items[0].metadata.name}")
	out, err := kubectl(r.t, r.Cluster, "", "drain", node, "--pod-selector=app=tenure-manager", "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=15s")
	if err == nil || !strings.Contains(out, "disruption budget") {
		r.t.Errorf("the drain is not held up by the disruption budget: %v\n%s", err, out)
	}
	if got := r.field("flux-system", "deployment/tenure-manager", ".status.readyReplicas"); got != "1" {
		r.t.Errorf("during the drain %q replicas of the manager are ready, want 1", got)
	}
	if out, err := kubectl(r.t, r.Cluster, "", "create", "namespace", "team-drained", "--as=alice", "--dry-run=server"); err != nil {
		r.t.Errorf("during the drain the owner cannot create a namespace: %v\n%s", err, out)
	}
	r.kubectl("", "uncordon", node)
	r.kubectl("", "-n", "flux-system", "rollout", "status", "deployment/tenure-manager", atMost)
}

// expires replaces the certificate of the webhook by one that has expired, as after a long time
// without a manager, and returns it.
func (r run) expires() []byte {
	r.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		r.t.Fatal(err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "expired"}, DNSNames: []string{"tenure-webhook.flux-system.svc"},
		NotBefore: now.AddDate(0, -4, 0), NotAfter: now.AddDate(0, -1, 0),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		r.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		r.t.Fatal(err)
	}
	encoded := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	secrets := kubernetes.NewForConfigOrDie(r.Cluster.REST).CoreV1().Secrets("flux-system")
	testwait.For(r.t, "the certificate to be replaced", patience, func() (bool, string) {
		secret, err := secrets.Get(r.t.Context(), "tenure-webhook", metav1.GetOptions{})
		if err != nil {
			r.t.Fatal(err)
		}
		secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey], secret.Data["ca.crt"] = encoded, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), encoded
		_, err = secrets.Update(r.t.Context(), secret, metav1.UpdateOptions{})
		if err != nil && !apierrors.IsConflict(err) {
			r.t.Fatal(err)
		}
		return err == nil, fmt.Sprint(err)
	})
	return encoded
}

// renewed waits until the manager has replaced a certificate, and an owner creates a namespace.
func (r run) renewed(expired []byte) {
	r.t.Helper()
	secrets := kubernetes.NewForConfigOrDie(r.Cluster.REST).CoreV1().Secrets("flux-system")
	testwait.For(r.t, "the manager to replace the expired certificate", patience, func() (bool, string) {
		secret, err := secrets.Get(r.t.Context(), "tenure-webhook", metav1.GetOptions{})
		if err != nil {
			r.t.Fatal(err)
		}
		return !bytes.Equal(secret.Data[corev1.TLSCertKey], expired), "it is still the expired one"
	})
	testwait.For(r.t, "the owner to create a namespace", patience, func() (bool, string) {
		out, err := kubectl(r.t, r.Cluster, "", "create", "namespace", "team-renewed", "--as=alice", "--dry-run=server")
		return err == nil, out
	})
}
