package kubeconfig

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/ui"
)

// signTimeout is how long the cluster may take to sign a certificate. signPoll is the interval
// of looks at the request.
const (
	signTimeout = 30 * time.Second
	signPoll    = 200 * time.Millisecond
)

// person makes a kubeconfig for a person who owns the Tenant, with a client certificate that the
// cluster signs.
func (o *options) person(ctx context.Context, kube client.Client, config *rest.Config) error {
	tenant, err := o.readTenant(ctx, kube)
	if err != nil {
		return err
	}
	groups, err := groupsOf(tenant, o.user, o.group)
	if err != nil {
		return err
	}
	cluster, err := o.personCluster(config)
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("cannot make a key: %w", err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("cannot make a key: %w", err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: o.user, Organization: groups}}, key)
	if err != nil {
		return fmt.Errorf("cannot make a certificate request: %w", err)
	}
	signed, err := o.sign(ctx, kube, request)
	if err != nil {
		return ui.WithHint(fmt.Errorf("cannot get a certificate for %s: %w", o.user, err), "it takes a cluster that signs certificates for kubernetes.io/kube-apiserver-client, and the right to approve them; managed clusters have a login of their own")
	}
	where, err := o.printFor(o.user, cluster, &clientcmdapi.AuthInfo{
		ClientCertificateData: signed, ClientKeyData: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}),
	})
	if err != nil {
		return err
	}
	expires, err := expiry(signed)
	if err != nil {
		return err
	}
	who := o.user
	if len(groups) > 0 {
		who += ", in group " + strings.Join(groups, ", ")
	}
	_, err = fmt.Fprintf(o.streams.Err, "%skubeconfig of %s, valid until %s; nobody can revoke a certificate before that\n", where, who, expires.UTC().Format(time.RFC3339))
	return err
}

// groupsOf returns the groups that a person needs to own the Tenant: the chosen group; without
// one, none for an owner of kind User, otherwise the only group that owns the Tenant.
func groupsOf(tenant *v1alpha1.Tenant, user, chosen string) ([]string, error) {
	if strings.HasPrefix(user, "system:") {
		return nil, fmt.Errorf("cannot make a certificate for %s: names that begin with system: are Kubernetes' own", user)
	}
	var groups []string
	for _, owner := range tenant.Spec.Owners {
		switch {
		case owner.Kind == rbacv1.UserKind && owner.Name == user && chosen == "":
			return nil, nil
		case owner.Kind == rbacv1.GroupKind && !strings.HasPrefix(owner.Name, "system:") && (chosen == "" || owner.Name == chosen):
			groups = append(groups, owner.Name)
		}
	}
	slices.Sort(groups)
	groups = slices.Compact(groups)
	switch {
	case len(groups) == 1:
		return groups, nil
	case len(groups) > 1:
		return nil, ui.WithHint(fmt.Errorf("cannot choose between the groups that own Tenant %s: %s", tenant.Name, strings.Join(groups, ", ")), "choose one with --group")
	case chosen != "":
		return nil, ui.WithHint(fmt.Errorf("group %s does not own Tenant %s", chosen, tenant.Name), "add it to spec.owners, or choose another one with --group")
	}
	return nil, ui.WithHint(fmt.Errorf("user %s does not own Tenant %s, and no group owns it", user, tenant.Name), "add the user, or one of the user's groups, to spec.owners")
}

// personCluster returns the API server that the admin uses, or the proxy of --server.
func (o *options) personCluster(config *rest.Config) (*clientcmdapi.Cluster, error) {
	cluster := &clientcmdapi.Cluster{Server: config.Host, TLSServerName: config.ServerName, CertificateAuthorityData: config.CAData}
	file := config.CAFile
	if o.serverGiven {
		cluster.Server, cluster.TLSServerName, file = o.server, o.serverName, o.ca
		if file == "" {
			return nil, ui.WithHint(errors.New("--as-user with --server needs --server-ca-file"), "the proxy accepts certificates with its flag --client-ca-file: see docs/how-to/proxy.md")
		}
	}
	if file != "" {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("cannot read the CA certificates: %w", err)
		}
		cluster.CertificateAuthorityData = content
	}
	if !strings.HasPrefix(cluster.Server, "https://") || len(cluster.CertificateAuthorityData) == 0 {
		return nil, fmt.Errorf("cannot make a kubeconfig for %s: the address must begin with https://, and the CA certificate must be known", cluster.Server)
	}
	return cluster, nil
}

// sign asks the cluster for a certificate, approves the request, and deletes it afterwards.
func (o *options) sign(ctx context.Context, kube client.Client, request []byte) ([]byte, error) {
	asked := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "tenure-" + o.tenant + "-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:           pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}),
			SignerName:        certificatesv1.KubeAPIServerClientSignerName,
			ExpirationSeconds: new(int32(o.duration / time.Second)),
			Usages:            []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature},
		},
	}
	if err := kube.Create(ctx, asked, client.FieldOwner(fieldManager)); err != nil {
		return nil, err
	}
	defer func() { _ = kube.Delete(context.WithoutCancel(ctx), asked) }()
	asked.Status.Conditions = append(asked.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "TenureKubeconfig", Message: "tenure kubeconfig --as-user",
	})
	if err := kube.SubResource("approval").Update(ctx, asked); err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, signTimeout)
	defer cancel()
	err := wait.PollUntilContextCancel(waiting, signPoll, true, func(ctx context.Context) (bool, error) {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(asked), asked); err != nil {
			return false, err
		}
		for _, c := range asked.Status.Conditions {
			if c.Type == certificatesv1.CertificateFailed {
				return false, fmt.Errorf("%s: %s", c.Reason, c.Message)
			}
		}
		return len(asked.Status.Certificate) > 0, nil
	})
	if waiting.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("no signer has answered within %s", signTimeout)
	}
	return asked.Status.Certificate, err
}

// expiry returns when a certificate ends.
func expiry(certificate []byte) (time.Time, error) {
	block, _ := pem.Decode(certificate)
	if block == nil {
		return time.Time{}, errors.New("the cluster signed the request, but returned no certificate")
	}
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}, fmt.Errorf("the cluster signed the request, but returned no certificate: %w", err)
	}
	return parsed.NotAfter, nil
}

// printFor prints a kubeconfig with one cluster and one user, or writes it to the file of --output. It
// returns the start of the message about that.
func (o *options) printFor(user string, cluster *clientcmdapi.Cluster, credential *clientcmdapi.AuthInfo) (where string, err error) {
	out := clientcmdapi.NewConfig()
	out.Clusters["tenure"] = cluster
	out.AuthInfos[user] = credential
	out.Contexts[user] = &clientcmdapi.Context{Cluster: "tenure", AuthInfo: user}
	out.CurrentContext = user
	content, err := clientcmd.Write(*out)
	if err != nil {
		return "", fmt.Errorf("cannot write a kubeconfig: %w", err)
	}
	return o.print(content)
}
