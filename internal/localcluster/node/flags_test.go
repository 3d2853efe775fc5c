package node

import (
	"errors"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// fluxProgram returns the Flux program with this name.
func fluxProgram(t testing.TB, name string) Program {
	t.Helper()
	for _, p := range FluxPrograms("/bin") {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("no program %s", name)
	return Program{}
}

func TestRewriteTenureServer(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		args   []string
		want   []string
		fails  string
	}{
		{"as its Deployment has it", []string{"manager", "--enable-leader-election", "--events-addr=http://notification-controller.flux-system.svc/"},
			[]string{"manager", "--enable-leader-election=true", "--events-addr=http://notification-controller.flux-system.svc/", "--health-addr=127.0.0.1:40001", "--metrics-addr=127.0.0.1:40002", "--webhook-addr=127.0.0.1:40003"}, ""},
		{"the proxy, as its Deployment has it", []string{"proxy", "--tls-dir=/tls", "--tls-host=a", "--tls-host=b", "--log-level=info"},
			[]string{"proxy", "--tls-host=a", "--tls-host=b", "--log-level=info", "--health-addr=127.0.0.1:40001", "--listen=127.0.0.1:40002", "--metrics-addr=127.0.0.1:40003", "--tls-dir=/state/tls"}, ""},
		{"a file of the host", []string{"proxy", "--tls-cert-file=/etc/tls.crt"}, nil, "--tls-cert-file"},
		{"another part of the program", []string{"version"}, nil, `"version"`},
		{"no part", nil, nil, "runs here as \"manager\" only"},
		{"the part after a flag", []string{"--log-level=info", "manager"}, nil, "--log-level=info"},
		{"a second argument", []string{"manager", "version"}, nil, `"version"`},
		{"a flag that is not on the list", []string{"manager", "--kubeconfig=/root/.kube/config"}, nil, "--kubeconfig"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			program, known := programFor(TenureServer("/bin"), &corev1.Container{Image: "tenure.dev/tenure-server:v1", Args: tc.args})
			if !known {
				t.Fatal("the image is not known")
			}
			inv, err := program.rewrite(tc.args, "/state", countingPorts())
			if tc.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tc.fails) {
					t.Fatalf("rewrite(): want an error with %q, got %v", tc.fails, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, inv.args); diff != "" {
				t.Errorf("rewrite(): -want, +got:\n%s", diff)
			}
		})
	}
}

// TestRewriteFluxOperator checks that the operator reads the given manifests, whatever its Pod
// says, and serves no pages.
func TestRewriteFluxOperator(t *testing.T) {
	t.Parallel()
	program, known := programFor([]Program{FluxOperator("/bin", "/bin/config/data")}, &corev1.Container{Image: "ghcr.io/controlplaneio-fluxcd/flux-operator:v0.58.0"})
	if !known {
		t.Fatal("the image is not known")
	}
	inv, err := program.rewrite([]string{"--storage-path=/etc", "--web-server-port=9080", "--default-service-account=flux-operator"}, "/state", countingPorts())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"--default-service-account=flux-operator", "--health-addr=127.0.0.1:40001", "--metrics-addr=127.0.0.1:40002",
		"--storage-path=/bin/config/data", "--web-server-port=0", "--enable-leader-election=false",
	}
	if diff := cmp.Diff(want, inv.args); diff != "" {
		t.Errorf("rewrite(): -want, +got:\n%s", diff)
	}
	if _, err := program.rewrite([]string{"--web-config=/etc/passwd"}, "/state", countingPorts()); err == nil {
		t.Error("rewrite(): a file of the host is accepted")
	}
}

// TestRewriteKyverno checks that Kyverno listens on loopback only, and gets no flag that would
// make it send data elsewhere, trust other roots or request addresses of this machine.
func TestRewriteKyverno(t *testing.T) {
	t.Parallel()
	programs := Kyverno("/bin")
	admission, _ := programFor(programs, &corev1.Container{Image: "reg.kyverno.io/kyverno/kyverno:v1.19.1"})
	inv, err := admission.rewrite([]string{
		"--webhookServerPort=9443", "--webhookServerHost=0.0.0.0", "--servicePort=443", "--otelConfig=grpc", "--kubeconfig=/etc/passwd",
		"--httpBlocklist=10.0.0.0/8", "--registryCredentialHelpers=amazon", "--v=2",
	}, "/state", countingPorts())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"--servicePort=443", "--v=2",
		"--controllerRuntimeMetricsAddress=127.0.0.1:40001", "--metricsPort=40002", "--webhookServerPort=40003",
		"--disableLogColor=true", "--metricsHost=127.0.0.1", "--webhookServerHost=127.0.0.1",
	}
	if diff := cmp.Diff(want, inv.args); diff != "" {
		t.Errorf("rewrite(): -want, +got:\n%s", diff)
	}
	if diff := cmp.Diff(map[int]int{8080: 40001, 8000: 40002, 9443: 40003}, inv.ports); diff != "" {
		t.Errorf("the ports: -want, +got:\n%s", diff)
	}
	for _, arg := range []string{"--log_file=/etc/passwd", "--webhookServerPort=http"} {
		if _, err := admission.rewrite([]string{arg}, "/state", countingPorts()); err == nil {
			t.Errorf("rewrite(): %s is accepted", arg)
		}
	}
	background, known := programFor(programs, &corev1.Container{Image: "reg.kyverno.io/kyverno/background-controller:v1.19.1"})
	if !known || background.Path != "/bin/kyverno-background-controller" {
		t.Errorf("the background controller is %q", background.Path)
	}
}

// countingPorts returns a function that returns 40001, 40002, and so on.
func countingPorts() func() (int, error) {
	next := 40000
	return func() (int, error) { next++; return next, nil }
}

func TestRewrite(t *testing.T) {
	t.Parallel()
	defaults := []string{"--health-addr=127.0.0.1:40001", "--metrics-addr=127.0.0.1:40002"}
	defaultPorts := map[int]int{9440: 40001, 8080: 40002}
	tests := map[string]struct {
		reason  string
		program string
		args    []string
		want    []string
		ports   map[int]int
		dropped []string
		flag    string
	}{
		"no arguments": {
			reason:  "listeners are always given, because the default would be the host's port",
			program: "kustomize-controller", want: defaults, ports: defaultPorts,
		},
		"source-controller's defaults": {
			reason:  "the storage folder and address are always given too",
			program: "source-controller",
			want: []string{"--health-addr=127.0.0.1:40001", "--metrics-addr=127.0.0.1:40002",
				"--storage-addr=127.0.0.1:40003", "--storage-path=/state/data"},
			ports: map[int]int{9440: 40001, 8080: 40002, 9090: 40003},
		},
		"upstream's lockdown": {
			reason: "known flags pass, leader election is left out", program: "kustomize-controller",
			args: []string{"--enable-leader-election", "--no-cross-namespace-refs=true", "--default-service-account", "default"},
			want: append([]string{"--no-cross-namespace-refs=true", "--default-service-account=default"}, defaults...), ports: defaultPorts,
			dropped: []string{"--enable-leader-election"},
		},
		"a boolean never takes the next argument": {
			reason: "pflag reads it as a positional argument, so the value would not be what it seems", program: "kustomize-controller",
			args: []string{"--no-remote-bases", "false"}, flag: `"false"`,
		},
		"exec kubeconfigs": {
			reason: "a tenant's kubeconfig would run programs on the host", program: "kustomize-controller",
			args: []string{"--insecure-kubeconfig-exec"}, flag: "--insecure-kubeconfig-exec",
		},
		"exec kubeconfigs, spelled out": {
			reason: "each spelling of true is refused", program: "helm-controller",
			args: []string{"--insecure-kubeconfig-exec=T"}, flag: "--insecure-kubeconfig-exec",
		},
		"insecure TLS off": {
			reason: "false is the default: left out", program: "helm-controller",
			args: []string{"--insecure-kubeconfig-tls=false"}, want: defaults, ports: defaultPorts,
			dropped: []string{"--insecure-kubeconfig-tls"},
		},
		"unknown flag": {
			reason: "what is not on the list does not run", program: "helm-controller",
			args: []string{"--kubeconfig=/root/.kube/config"}, flag: "--kubeconfig",
		},
		"a shorthand":     {reason: "there are none", program: "helm-controller", args: []string{"-v"}, flag: `"-v"`},
		"the terminator":  {reason: "nothing may follow it", program: "helm-controller", args: []string{"--", "x"}, flag: `"--"`},
		"a missing value": {reason: "the program would end at once", program: "helm-controller", args: []string{"--log-level"}, flag: "--log-level"},
		"a path with ..": {
			reason: "it could leave the state folder", program: "source-controller",
			args: []string{"--storage-path=/data/../../etc"}, flag: "--storage-path",
		},
		"a relative path": {
			reason: "relative to what", program: "source-controller",
			args: []string{"--storage-path=data"}, flag: "--storage-path",
		},
		"last one counts": {
			reason: "as in pflag", program: "image-reflector-controller",
			args: []string{"--storage-path=/a", "--storage-path", "/b/c/"},
			want: append(slices.Clone(defaults), "--storage-path=/state/b/c"), ports: defaultPorts,
		},
		"listeners of the fleet's choice": {
			reason: "the port is kept as the container's, the address becomes loopback's; 0 switches off", program: "kustomize-controller",
			args:  []string{"--health-addr=0.0.0.0:1234", "--metrics-addr", "0"},
			want:  []string{"--health-addr=127.0.0.1:40001", "--metrics-addr=0"},
			ports: map[int]int{1234: 40001},
		},
		"events of the notification-controller": {
			reason: "there the flag is a listen address", program: "notification-controller",
			args: []string{"--events-addr=:9999"},
			want: []string{"--events-addr=127.0.0.1:40001", "--health-addr=127.0.0.1:40002",
				"--metrics-addr=127.0.0.1:40003", "--receiverAddr=127.0.0.1:40004"},
			ports: map[int]int{9999: 40001, 9440: 40002, 8080: 40003, 9292: 40004},
		},
		"events of the others": {
			reason: "there it is an address to call, and a file is none", program: "kustomize-controller",
			args: []string{"--events-addr=file:///etc/passwd"}, flag: "--events-addr",
		},
		"feature gates": {
			reason: "the memory watcher needs a container", program: "helm-controller",
			args: []string{"--feature-gates=OOMWatch=true,ExternalArtifact=true"},
			want: append([]string{"--feature-gates=ExternalArtifact=true"}, defaults...), ports: defaultPorts,
			dropped: []string{"feature gate OOMWatch"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inv, err := fluxProgram(t, tc.program).rewrite(tc.args, "/state", countingPorts())
			if tc.flag != "" {
				var refused *argError
				if !errors.As(err, &refused) || refused.flag != tc.flag {
					t.Fatalf("%s: got error %v, want one about %s", tc.reason, err, tc.flag)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			// The first argument chooses the controller in the program.
			if diff := cmp.Diff(append([]string{tc.program}, tc.want...), inv.args); diff != "" {
				t.Errorf("%s: arguments: -want +got\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.ports, inv.ports); diff != "" {
				t.Errorf("%s: ports: -want +got\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.dropped, inv.dropped); diff != "" {
				t.Errorf("%s: left out: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func TestProgramsHaveNoFlagTwice(t *testing.T) {
	t.Parallel()
	if n := len(FluxPrograms("/bin")); n != 7 {
		t.Fatalf("got %d programs, want the seven controllers", n)
	}
	for _, p := range slices.Concat(FluxPrograms("/bin"), Kyverno("/bin")) {
		seen := map[string]bool{}
		for _, f := range p.Flags {
			if seen[f.Name] {
				t.Errorf("%s lists --%s twice: the second is never used", p.Name, f.Name)
			}
			seen[f.Name] = true
			if (f.Kind == KindListen || f.Kind == KindPort || f.Kind == KindPath) && f.Default == "" {
				t.Errorf("%s: --%s has no default: upstream's would be the host's", p.Name, f.Name)
			}
		}
	}
}

func FuzzRewrite(f *testing.F) {
	for _, seed := range []string{
		"--insecure-kubeconfig-exec", "--insecure-kubeconfig-exec=true", "--storage-path\n/../x", "--log-level\n--insecure-kubeconfig-tls",
		"--feature-gates=OOMWatch=true\n--health-addr=:0", "--=x", "---x", "--storage-path=/a/./b//c", "--override-manager=a\n--override-manager=b",
	} {
		f.Add(seed)
	}
	shape := regexp.MustCompile(`(?s)^--([A-Za-z][A-Za-z-]*)=(.*)$`)
	loopback := regexp.MustCompile(`^(0|127\.0\.0\.1:4\d{4})$`)
	f.Fuzz(func(t *testing.T, joined string) {
		const root = "/state/root"
		for _, p := range FluxPrograms("/bin") {
			inv, err := p.rewrite(strings.Split(joined, "\n"), root, countingPorts())
			if err != nil {
				continue
			}
			if !slices.Equal(p.Prefix, inv.args[:len(p.Prefix)]) {
				t.Fatalf("%s: another program would run: %q", p.Name, inv.args)
			}
			for _, arg := range inv.args[len(p.Prefix):] {
				m := shape.FindStringSubmatch(arg)
				if m == nil {
					t.Fatalf("%s: %q is not --name=value", p.Name, arg)
				}
				flag, known := p.flag(m[1])
				switch {
				case !known:
					t.Fatalf("%s: unknown flag %q came through", p.Name, arg)
				case flag.Kind == KindRefused || flag.Kind == KindDropped || flag.Kind == KindDroppedValue:
					t.Fatalf("%s: forbidden flag %q came through", p.Name, arg)
				case flag.Kind == KindPath && m[2] != root && !strings.HasPrefix(filepath.Clean(m[2]), root+"/"):
					t.Fatalf("%s: %q leaves %s", p.Name, arg, root)
				case flag.Kind == KindListen && !loopback.MatchString(m[2]):
					t.Fatalf("%s: %q listens outside of loopback", p.Name, arg)
				}
			}
			for _, dir := range inv.dirs {
				if dir != "" && !filepath.IsLocal(dir) {
					t.Fatalf("%s: folder %q leaves the root", p.Name, dir)
				}
			}
		}
	})
}

func TestProgramFor(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason  string
		image   string
		command []string
		want    string
	}{
		"upstream":         {reason: "tag is ignored", image: "ghcr.io/fluxcd/source-controller:v1.9.4", want: "source-controller"},
		"digest":           {reason: "digest is ignored", image: "ghcr.io/fluxcd/source-controller:v1@sha256:abc", want: "source-controller"},
		"another registry": {reason: "mirrors are common", image: "localhost:5000/mirror/flux/source-controller", want: "source-controller"},
		"bare":             {reason: "upstream's development manifests", image: "source-controller", want: "source-controller"},
		"a longer name":    {reason: "only the whole segment counts", image: "x/my-source-controller:v1"},
		"as a folder":      {reason: "only the last segment counts", image: "x/source-controller/other:v1"},
		"as a registry":    {reason: "a port is no tag", image: "source-controller:5000/x"},
		"own command":      {reason: "the image's own program, named", image: "x/source-controller", command: []string{"/usr/bin/source-controller"}, want: "source-controller"},
		"another command":  {reason: "what it runs is not the program", image: "x/source-controller", command: []string{"sh"}},
		"a longer command": {reason: "arguments in the command are not looked at", image: "x/source-controller", command: []string{"source-controller", "--x"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, _ := programFor(FluxPrograms("/bin"), &corev1.Container{Image: tc.image, Command: tc.command})
			if got.Name != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got.Name, tc.want)
			}
		})
	}
}
