package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tenure-dev/tenure/internal/process/pki"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// KubeletClientName is the common name of the client certificate that the API server
// uses for the node.
const KubeletClientName = "kube-apiserver-kubelet-client"

const (
	frontProxyName = "front-proxy-client"
	// kubernetesIP is the cluster IP of the Service kubernetes: the first of
	// ServiceCIDR.
	kubernetesIP = "10.96.0.1"
)

// Keys are a cluster's certificates.
type Keys struct {
	// CA signs the client and server certificates of the cluster.
	CA *pki.Authority
	// Admin is a client certificate of the group system:masters.
	Admin pki.Pair
	// ControllerManager and Scheduler are the client certificates of these
	// components.
	ControllerManager, Scheduler pki.Pair
	// Node is the node's serving certificate, for 127.0.0.1.
	Node pki.Pair
}

// loadKeys reads the persistent keys of the cluster from the folder data, or creates
// them there. It writes the files that the components read into dir. Leaf
// certificates are new at each start.
func loadKeys(data, dir string) (*Keys, error) {
	for _, d := range []string{data, dir} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("cannot make the folder for certificates: %w", err)
		}
	}
	ca, err := lastingAuthority(data, "ca", "tenure-local")
	if err != nil {
		return nil, err
	}
	frontCA, err := lastingAuthority(data, "front-proxy-ca", "tenure-local-front-proxy")
	if err != nil {
		return nil, err
	}
	saKey, saPub, err := lastingSigner(data)
	if err != nil {
		return nil, err
	}
	keys := &Keys{CA: ca}
	files := map[string][]byte{
		"ca.crt": ca.CertPEM, "ca.key": ca.KeyPEM,
		"front-proxy-ca.crt": frontCA.CertPEM,
		"sa.key":             saKey, "sa.pub": saPub,
	}
	serverNames := []string{
		"127.0.0.1", "localhost", kubernetesIP, "kubernetes", "kubernetes.default",
		"kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	}
	leaves := []struct {
		by   *pki.Authority
		req  pki.Request
		file string
		to   *pki.Pair
	}{
		{ca, pki.Request{CommonName: "kube-apiserver", Hosts: serverNames}, "apiserver", nil},
		{ca, pki.Request{CommonName: KubeletClientName, Organizations: []string{"system:masters"}}, "kubelet-client", nil},
		{frontCA, pki.Request{CommonName: frontProxyName}, "front-proxy", nil},
		{ca, pki.Request{CommonName: "tenure-admin", Organizations: []string{"system:masters"}}, "", &keys.Admin},
		{ca, pki.Request{CommonName: "system:kube-controller-manager"}, "", &keys.ControllerManager},
		{ca, pki.Request{CommonName: "system:kube-scheduler"}, "", &keys.Scheduler},
		{ca, pki.Request{CommonName: "tenure-node", Hosts: []string{"127.0.0.1"}}, "", &keys.Node},
	}
	for _, leaf := range leaves {
		pair, err := leaf.by.Issue(leaf.req)
		if err != nil {
			return nil, err
		}
		if leaf.file != "" {
			files[leaf.file+".crt"], files[leaf.file+".key"] = pair.CertPEM, pair.KeyPEM
		}
		if leaf.to != nil {
			*leaf.to = pair
		}
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return nil, fmt.Errorf("cannot write the certificates: %w", err)
		}
	}
	return keys, nil
}

// lastingAuthority loads an authority from the folder, or creates it and saves it
// there, so that a durable cluster keeps its identity.
func lastingAuthority(dir, name, commonName string) (*pki.Authority, error) {
	certFile, keyFile := filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	cert, err := os.ReadFile(certFile)
	if err == nil {
		key, err := os.ReadFile(keyFile)
		if err != nil {
			return nil, fmt.Errorf("cannot load the cluster's certificates: %w", err)
		}
		authority, err := pki.LoadAuthority(cert, key)
		if err != nil {
			return nil, fmt.Errorf("cannot use %s and %s.key: %w; a --data folder without them gets new ones, which old tokens and kubeconfigs do not fit", certFile, name, err)
		}
		return authority, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot load the cluster's certificates: %w", err)
	}
	authority, err := pki.NewAuthority(commonName)
	if err != nil {
		return nil, err
	}
	// Write the key first: a certificate without its key would look complete.
	if err := errors.Join(
		os.WriteFile(keyFile, authority.KeyPEM, 0o600),
		os.WriteFile(certFile, authority.CertPEM, 0o600),
	); err != nil {
		return nil, fmt.Errorf("cannot save the cluster's certificates: %w", err)
	}
	return authority, nil
}

// lastingSigner loads or creates the key pair that signs service account tokens.
func lastingSigner(dir string) (private, public []byte, err error) {
	file := filepath.Join(dir, "sa.key")
	private, err = os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		key, kerr := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if kerr != nil {
			return nil, nil, fmt.Errorf("cannot make the key for tokens: %w", kerr)
		}
		if private, err = pki.EncodeKey(key); err != nil {
			return nil, nil, err
		}
		err = os.WriteFile(file, private, 0o600)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("cannot keep the key for tokens: %w", err)
	}
	block, _ := pem.Decode(private)
	if block == nil {
		return nil, nil, fmt.Errorf("cannot read %s: it is not PEM", file)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read %s: %w", file, err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, nil, fmt.Errorf("cannot read %s: a %T is not an ECDSA key", file, parsed)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, nil, fmt.Errorf("cannot encode the public key for tokens: %w", err)
	}
	return private, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

// WriteKubeconfig writes a kubeconfig for the control plane that only its owner can read. The
// cluster, the user and the context get the given name. It returns an error if the file cannot be
// written.
func (c *ControlPlane) WriteKubeconfig(file, name string, client pki.Pair) error {
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: c.Server, CertificateAuthorityData: c.Keys.CA.CertPEM}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: client.CertPEM, ClientKeyData: client.KeyPEM}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		return fmt.Errorf("cannot write the kubeconfig: %w", err)
	}
	return nil
}
