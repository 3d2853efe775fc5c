package controlplane

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
)

func (c *ControlPlane) apiServerArgs(port int) []string {
	pki := func(name string) string { return filepath.Join(c.cfg.Dir, "pki", name) }
	args := []string{
		"--etcd-servers=unix://" + c.socket("etcd"),
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		// The API server would publish its address as an endpoint of the Service
		// kubernetes, where loopback addresses are not allowed.
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=" + ServiceCIDR,
		"--authorization-mode=Node,RBAC",
		"--allow-privileged=true",
		"--profiling=false",
		"--tls-cert-file=" + pki("apiserver.crt"),
		"--tls-private-key-file=" + pki("apiserver.key"),
		"--client-ca-file=" + pki("ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + pki("sa.pub"),
		"--service-account-signing-key-file=" + pki("sa.key"),
		"--kubelet-client-certificate=" + pki("kubelet-client.crt"),
		"--kubelet-client-key=" + pki("kubelet-client.key"),
		"--kubelet-certificate-authority=" + pki("ca.crt"),
		"--kubelet-preferred-address-types=InternalIP",
		"--requestheader-client-ca-file=" + pki("front-proxy-ca.crt"),
		"--requestheader-allowed-names=" + frontProxyName,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + pki("front-proxy.crt"),
		"--proxy-client-key-file=" + pki("front-proxy.key"),
	}
	if len(c.cfg.EgressConfig) > 0 {
		args = append(args, "--egress-selector-config-file="+filepath.Join(c.cfg.Dir, "egress.yaml"))
	}
	if len(c.cfg.Authentication) > 0 {
		args = append(args, "--authentication-config="+filepath.Join(c.cfg.Dir, authenticationFile))
	}
	return args
}

func (c *ControlPlane) controllerManagerArgs() []string {
	pki := func(name string) string { return filepath.Join(c.cfg.Dir, "pki", name) }
	kubeconfig := c.kubeconfig("kube-controller-manager")
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + pki("sa.key"),
		"--root-ca-file=" + pki("ca.crt"),
		"--cluster-signing-cert-file=" + pki("ca.crt"),
		"--cluster-signing-key-file=" + pki("ca.key"),
		"--controllers=*,tokencleaner",
		"--leader-elect=false",
		"--secure-port=0",
		"--profiling=false",
		// The node lives as long as the cluster. If its lease is late, because the API
		// server restarts on a busy machine or the machine was asleep, all Pods would be
		// marked as not ready, and stay so: virtual-kubelet reports a status once.
		"--node-monitor-grace-period=8760h",
		// A ResourceQuota that counts objects of a kind refuses all of them until
		// its status holds a count. A new kind waits up to this period for its
		// count.
		"--resource-quota-sync-period=15s",
		// The defaults protect the API servers of large clusters; here they would
		// delay the start.
		"--kube-api-qps=300",
		"--kube-api-burst=500",
	}
}

func (c *ControlPlane) schedulerArgs() []string {
	kubeconfig := c.kubeconfig("kube-scheduler")
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--leader-elect=false",
		"--secure-port=0",
		"--profiling=false",
		"--kube-api-qps=300",
		"--kube-api-burst=500",
	}
}

// readyProbe returns a function that returns nil if the API server is ready.
func (c *ControlPlane) readyProbe() (func() error, error) {
	transport, err := rest.TransportFor(c.RESTConfig())
	if err != nil {
		return nil, fmt.Errorf("cannot make a client of the API server: %w", err)
	}
	client := &http.Client{Transport: transport, Timeout: 2 * time.Second}
	return func() error {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, c.Server+"/readyz", nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("the API server answers %s to /readyz", resp.Status)
		}
		return nil
	}, nil
}
