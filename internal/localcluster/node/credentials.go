package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	// tokenSeconds is the lifetime of a token.
	tokenSeconds = 3600
	// tokenCheck is the interval of checks whether a token must be renewed. The
	// checks compare wall clock times, since a machine may sleep.
	tokenCheck = 30 * time.Second
	// tokenPath is the path where the API server's admission mounts the token.
	tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount" //nolint:gosec // a path, not a token
)

// credentials are the service account token and the kubeconfig of a Pod.
type credentials struct {
	pod *podState

	mu         sync.Mutex
	renewing   bool
	renewAfter time.Time
}

// ensure writes the kubeconfig of a container and returns the path of the file. The
// kubeconfig contains the Pod's own token, which is bound to the Pod and renewed
// until the Pod ends. The kubeconfig of a Pod that has opted out contains no token.
func (c *credentials) ensure(ctx context.Context, container *corev1.Container) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	token := ""
	if mountsToken(container) {
		token = filepath.Join(c.pod.dir, "token")
		if time.Now().Round(0).After(c.renewAfter) {
			if err := c.renewLocked(ctx, token); err != nil {
				return "", err
			}
		}
		if !c.renewing {
			c.renewing = true
			c.pod.n.running.Go(func() { c.keep(c.pod.life, token) })
		}
	}
	file := filepath.Join(c.pod.dir, "containers", container.Name, "kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["local"] = &clientcmdapi.Cluster{Server: c.pod.n.cfg.Server, CertificateAuthorityData: c.pod.n.cfg.CAPEM}
	config.AuthInfos["pod"] = &clientcmdapi.AuthInfo{TokenFile: token}
	config.Contexts["local"] = &clientcmdapi.Context{Cluster: "local", AuthInfo: "pod", Namespace: c.pod.namespace}
	config.CurrentContext = "local"
	raw, err := clientcmd.Write(*config)
	if err != nil {
		return "", fmt.Errorf("cannot encode the kubeconfig: %w", err)
	}
	if err := writeFile(file, raw); err != nil {
		return "", fmt.Errorf("cannot write the kubeconfig: %w", err)
	}
	return file, nil
}

// mountsToken reports whether the container mounts the Pod's token. Admission adds
// the mount unless the Pod or its service account has opted out.
func mountsToken(container *corev1.Container) bool {
	for _, m := range container.VolumeMounts {
		if strings.TrimSuffix(m.MountPath, "/") == tokenPath {
			return true
		}
	}
	return false
}

// renewLocked requests a token and writes it atomically.
func (c *credentials) renewLocked(ctx context.Context, file string) error {
	p := c.pod
	account := p.snapshot().Spec.ServiceAccountName
	seconds := int64(tokenSeconds)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &seconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: p.name, UID: p.uid},
	}}
	answer, err := p.n.cfg.Client.CoreV1().ServiceAccounts(p.namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("cannot get a token for service account %s/%s: %w", p.namespace, account, err)
	}
	if err := writeFile(file, []byte(answer.Status.Token)); err != nil {
		return fmt.Errorf("cannot write the token of service account %s/%s: %w", p.namespace, account, err)
	}
	// Renew after four fifths of the lifetime, as a kubelet does.
	life := time.Until(answer.Status.ExpirationTimestamp.Time)
	c.renewAfter = time.Now().Round(0).Add(life * 4 / 5)
	return nil
}

// keep renews the token until the Pod ends.
func (c *credentials) keep(ctx context.Context, file string) {
	ticker := time.NewTicker(tokenCheck)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		c.mu.Lock()
		if time.Now().Round(0).After(c.renewAfter) {
			if err := c.renewLocked(ctx, file); err != nil && ctx.Err() == nil {
				c.pod.n.log.Warn("cannot renew a token; it is tried again", "namespace", c.pod.namespace, "pod", c.pod.name, "error", err)
			}
		}
		c.mu.Unlock()
	}
}

// writeFile replaces a file atomically: a reader gets the old or the new content.
func writeFile(file string, content []byte) error {
	tmp := file + ".new"
	if err := os.WriteFile(tmp, content, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, file)
}
