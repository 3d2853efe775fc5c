package catalog

import (
	"context"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const kubeConfigPolicy = "policy on spec.kubeConfig"

func addRemoteKubeconfig(register func(...Attack)) {
	own := func(e *Scenario) *unstructured.Unstructured { return e.suspended("i13", nil) }
	ownRelease := func(e *Scenario) *unstructured.Unstructured { return e.suspendedRelease("i13", nil) }
	elsewhere := func(spec map[string]any) { withKubeConfig(spec, "any") }
	byProvider := func(spec map[string]any) {
		spec["kubeConfig"] = map[string]any{"configMapRef": map[string]any{"name": "any"}}
	}
	register(Attack{
		ID: "I13", Via: API,
		Kinds:      []string{"HelmRelease", "Kustomization"},
		Title:      "directs Flux to another cluster with its own kubeconfig",
		Controls:   []string{kubeConfigPolicy},
		References: []string{"CVE-2022-24817"},
		Fix:        Fix{Advice: "forbid spec.kubeConfig in Kustomizations and HelmReleases of tenants with a ValidatingAdmissionPolicy, or allow only the Secrets that the platform generates"},
		Run: requests(
			request{
				what:  "have kustomize-controller talk to any address with a kubeconfig of its own",
				aimed: creating(func(e *Scenario) *unstructured.Unstructured { return e.suspended("i13", elsewhere) }),
				own:   creating(own),
			},
			request{
				what:  "have helm-controller talk to any address with a kubeconfig of its own",
				aimed: creating(func(e *Scenario) *unstructured.Unstructured { return e.suspendedRelease("i13", elsewhere) }),
				own:   creating(ownRelease),
			},
			request{
				what:  "have kustomize-controller talk to the address in a ConfigMap of its own, with its cloud identity",
				aimed: ifServed("kubeConfig.configMapRef", func(e *Scenario) *unstructured.Unstructured { return e.suspended("i13", byProvider) }),
				own:   creating(own),
			},
			request{
				what:  "have helm-controller talk to the address in a ConfigMap of its own, with its cloud identity",
				aimed: ifServed("kubeConfig.configMapRef", func(e *Scenario) *unstructured.Unstructured { return e.suspendedRelease("i13", byProvider) }),
				own:   creating(ownRelease),
			},
		),
	})
	register(insecureKubeconfig("exec", "makes a Flux controller run a program with its own kubeconfig", insecureExec))
	register(insecureKubeconfig("TLS", "makes a Flux controller skip the verification of certificates with its own kubeconfig", insecureTLS))
}

// insecureFlag is a flag with which a controller trusts a part of kubeconfigs.
type insecureFlag struct {
	// flag is the name of the flag.
	flag string
	// kubeconfig returns a kubeconfig with this part; a program that the kubeconfig runs creates the file
	// canary.
	kubeconfig func(e *Scenario, canary string) *clientcmdapi.Config
	// refused matches the message of a controller that ignored this part of the
	// kubeconfig.
	refused *regexp.Regexp
}

// staysOff returns the name of the control.
func (i insecureFlag) staysOff() string { return "flag " + i.flag + " stays off" }

var (
	insecureExec = insecureFlag{
		flag: "--insecure-kubeconfig-exec",
		kubeconfig: func(e *Scenario, canary string) *clientcmdapi.Config {
			cluster := &clientcmdapi.Cluster{Server: e.config.Host, CertificateAuthorityData: e.config.CAData}
			return kubeconfigOf(cluster, &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
				APIVersion: "client.authentication.k8s.io/v1", Command: "touch", Args: []string{canary},
				InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
			}})
		},
		// The request has no credentials, and anonymous users may not impersonate.
		refused: regexp.MustCompile(`\(Forbidden\): failed to get server groups|Unauthorized|provide credentials|User "system:anonymous" cannot`),
	}
	insecureTLS = insecureFlag{
		flag: "--insecure-kubeconfig-tls",
		kubeconfig: func(e *Scenario, _ string) *clientcmdapi.Config {
			return kubeconfigOf(&clientcmdapi.Cluster{Server: e.config.Host, InsecureSkipTLSVerify: true}, &clientcmdapi.AuthInfo{})
		},
		refused: regexp.MustCompile(`x509: certificate signed by unknown authority`),
	}
)

func kubeconfigOf(cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) *clientcmdapi.Config {
	const only = "canary"
	return &clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{only: cluster},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{only: user},
		Contexts:       map[string]*clientcmdapi.Context{only: {Cluster: only, AuthInfo: only}},
		CurrentContext: only,
	}
}

func withKubeConfig(spec map[string]any, secret string) {
	spec["kubeConfig"] = map[string]any{"secretRef": map[string]any{"name": secret}}
}

// kubeconfigControllers are the controllers that apply objects with kubeconfigs.
var kubeconfigControllers = []string{"kustomize-controller", "helm-controller"}

func insecureKubeconfig(kind, title string, what insecureFlag) Attack {
	off := Layer{Name: what.staysOff(), Holds: func(ctx context.Context, e *Scenario) (bool, error) {
		on, err := e.whoRunsWith(ctx, what.flag)
		return on == "", err
	}}
	a := Attack{
		ID: "I13", Via: API, Kind: kind,
		Kinds:      []string{"HelmRelease", "Kustomization", "Secret"},
		Title:      title,
		Controls:   []string{off.Name, kubeConfigPolicy},
		References: []string{"CVE-2022-24817"},
		Fix:        Fix{Advice: "start kustomize-controller and helm-controller without " + what.flag + ", and forbid spec.kubeConfig in tenants' objects with a ValidatingAdmissionPolicy"},
		Layers: []Layer{off, admissionLayer(kubeConfigPolicy, func(e *Scenario) *unstructured.Unstructured {
			return e.suspended("i13", func(spec map[string]any) { withKubeConfig(spec, "any") })
		})},
		Deep: true,
	}
	a.Files = func(e *Scenario) map[string]string {
		own := ownConfigMap("i13-" + kind)(e)
		return map[string]string{"aimed/canary.yaml": manifest(own), "own/canary.yaml": manifest(own)}
	}
	a.Run = func(ctx context.Context, e *Scenario) Finding { return e.insecureKubeconfig(ctx, a.Key(), kind, what) }
	return a
}

// insecureKubeconfig first sends a dry run. If the API server accepts the object, it gives the object to
// Flux, unless a controller has the flag that trusts kubeconfigs: such a flag is sufficient evidence, and
// the local cluster does not execute kubeconfigs on this machine.
func (e *Scenario) insecureKubeconfig(ctx context.Context, key, kind string, what insecureFlag) Finding {
	u := e.kustomization(key, folder(key)+"/aimed", func(spec map[string]any) { withKubeConfig(spec, name(key)) })
	err := aboutAttack(ctx, e.tryWrite(ctx, u, nil), func(ctx context.Context) error {
		return e.tryIntact(ctx, e.kustomization(key, folder(key)+"/own", nil))
	})
	if errors.Is(err, errByChange) {
		err = nil
	}
	on, flagErr := e.whoRunsWith(ctx, what.flag)
	switch {
	case flagErr != nil:
		return notProven(firstLine(flagErr.Error()))
	case err == nil && on != "":
		return gotThrough(on + " is started with " + what.flag + ", and the tenant may give it a kubeconfig")
	}
	f := judge(err, "")
	if err == nil {
		f = e.givesKubeconfig(ctx, u, key, what)
	}
	return e.confirm(ctx, e.kustomization, key, ownConfigMap("i13-"+kind)(e), f)
}

func (e *Scenario) givesKubeconfig(ctx context.Context, u *unstructured.Unstructured, key string, what insecureFlag) Finding {
	dir, err := os.MkdirTemp("", "tenure-canary-")
	if err != nil {
		return notProven(err.Error())
	}
	defer os.RemoveAll(dir)
	canary := filepath.Join(dir, "touched")
	content, err := clientcmd.Write(*what.kubeconfig(e, canary))
	if err != nil {
		return notProven(err.Error())
	}
	secret := object("v1", "Secret", e.Namespace, name(key), map[string]any{"data": map[string]any{"value": base64.StdEncoding.EncodeToString(content)}})
	if err := e.As.Create(ctx, secret); err != nil {
		return judge(err, "")
	}
	defer e.remove(secret)
	said, err := e.apply(ctx, u, func() {})
	if err != nil {
		return judge(err, "")
	}
	_, missing := os.Stat(canary)
	switch {
	case missing == nil:
		return gotThrough("kustomize-controller ran the program in a kubeconfig of the tenant")
	case what.refused.MatchString(said.message):
		return stopped(what.staysOff(), firstLine(said.message))
	case said.ready == "True":
		return gotThrough("kustomize-controller used a kubeconfig of the tenant")
	}
	return notProven("the answer is neither a success nor a known refusal: " + firstLine(said.message))
}

// whoRunsWith returns the name of a controller that runs with a flag, or "".
func (e *Scenario) whoRunsWith(ctx context.Context, flag string) (string, error) {
	for _, controller := range kubeconfigControllers {
		args, err := e.arguments(ctx, controller)
		if err != nil {
			return "", err
		}
		if on, _ := strconv.ParseBool(lastValue(args, flag)); on {
			return controller, nil
		}
	}
	return "", nil
}
