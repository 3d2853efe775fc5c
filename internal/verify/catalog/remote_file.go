package catalog

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"

	"github.com/tenure-dev/tenure/internal/localcluster/node"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// noProxyThere is the control that stops S15: kustomize-controller reaches other hosts only through a
// proxy, and nothing listens at the proxy's address.
const noProxyThere = "HTTPS_PROXY of kustomize-controller"

// noSSH is the other control that stops S15: git of kustomize-controller uses no protocol without a proxy.
const noSSH = "GIT_ALLOW_PROTOCOL of kustomize-controller"

func addRemoteFile(register func(...Attack)) {
	canary := func(namespace string) *unstructured.Unstructured { return configMap(namespace, name("s15")) }
	attack := Attack{
		ID: "S15", Via: Git,
		Kinds:      []string{"Kustomization"},
		Title:      "lets kustomize-controller connect to a host that a kustomization.yaml names, which bypasses the approved sources and network policies",
		Controls:   []string{noProxyThere, noSSH},
		References: []string{"flux2 documentation: --no-remote-bases is about bases (fluxcd/website#1406)", "kustomize documentation: remote targets"},
		Fix: Fix{
			Advice: "start kustomize-controller with HTTPS_PROXY as an address where nothing listens, such as http://127.0.0.1:9, HTTP_PROXY as a proxy that passes artifacts alone (`tenure-server artifact-proxy`), and $(KUBERNETES_SERVICE_HOST), notification-controller and the hosts that it needs in NO_PROXY, and with GIT_ALLOW_PROTOCOL as http:https, since git uses no proxy for SSH; `tenure profile multi-tenant` does so",
		},
		Deep: true,
	}
	attack.Files = func(e *Scenario) map[string]string {
		return map[string]string{
			"aimed/kustomization.yaml": kustomizationOf(e, "https://"+baseHost+filePath),
			"ssh/kustomization.yaml":   kustomizationOf(e, "ssh://git@"+baseHost+basePath),
			"own/kustomization.yaml":   kustomizationOf(e, "file.yaml"),
			"own/file.yaml":            manifest(canary("")),
		}
	}
	attack.Run = func(ctx context.Context, e *Scenario) Finding {
		e, err := e.delivering(ctx)
		if err != nil {
			return notProven(firstLine(err.Error()))
		}
		f := e.reconciles(ctx, attack.Key(), canary(e.Namespace), canary(e.Namespace), e.asItSyncs)
		if f = ofFile(f); f.Outcome != Stopped {
			return f
		}
		said, err := e.apply(ctx, e.kustomization(attack.Key()+"-ssh", folder(attack.Key())+"/ssh", e.asItSyncs), func() {})
		if err != nil {
			return judge(err, "")
		}
		return judgeSSH(f, said.message)
	}
	register(attack)
}

// ofFile returns the finding of S15. If the file does not come, kustomize tries it as a base, which --no-remote-bases refuses: then
// only the reason why it did not come names a control.
func ofFile(f Finding) Finding {
	switch {
	case f.Outcome != Stopped:
	case proxyRefusal.MatchString(f.Message):
		f.Control = noProxyThere
	case strings.HasPrefix(f.Control, "flag --no-remote-bases"):
		return notProven("the file did not come, and --no-remote-bases, which is about bases, refused its address: " + f.Message)
	}
	return f
}

// sshRefusal matches the message of git about a protocol that GIT_ALLOW_PROTOCOL leaves out.
var sshRefusal = regexp.MustCompile(`transport 'ssh' not allowed`)

// judgeSSH returns the finding of S15 for what Flux says about a base that is reached by SSH. Stopped is the finding for
// a file that is reached with TLS. kustomize clones a base before --no-remote-bases refuses it.
func judgeSSH(stopped Finding, message string) Finding {
	switch {
	case sshRefusal.MatchString(message):
		stopped.Control += ", " + noSSH
		return stopped
	case strings.Contains(message, node.NoSSH):
		return gotThrough("git of kustomize-controller would connect to the host of a base by SSH, without a proxy, before Flux refuses the base")
	}
	return notProven("the answer about a base that is reached by SSH is no known refusal: " + firstLine(message))
}

// filePath is the path of the file that S15 names, on the host of S7's repository.
const filePath = "/files/s15.yaml"

// serveFile serves the file that S15 names.
func serveFile(outside Outside) {
	if outside == nil {
		return
	}
	outside.Handle(baseHost, filePath, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = io.WriteString(w, manifest(configMap("", name("s15"))))
	}))
}
