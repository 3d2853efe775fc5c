package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// program describes a program that this repository builds.
type program struct {
	name    string
	module  string   // folder of the module, relative to the root
	modfile string   // file in that folder to use instead of go.mod, or ""
	pkg     string   // its main package, as the module sees it
	links   []string // further names under which the program is called
	release string   // module whose version the program reports, or ""

	// variable is the string variable that gets the version of release, or "".
	variable string

	// folder is a folder of release's module that the build copies into bin, with the module's
	// licence, as copies.
	folder, copies string

	// embeds is a file that the sources embed and the published module of release lacks. Such a
	// program is built in a copy of the module, at the version that module requires and with the
	// copy's own go.mod, with an empty file in place of the missing one. With a folder, it is
	// built in a folder with the go.mod of module, in which the copy replaces release's module: it
	// needs the requirements and replacements of module.
	embeds string

	// joins are programs that this one calls as functions, Main: it is built in a folder with the
	// files of module, in which copies replace the modules of these programs. In the copies, their
	// packages have the name controller instead of main.
	joins []joinedProgram
}

// joinedProgram is the folder of a module's main package, by default the root of the module.
type joinedProgram struct{ module, folder string }

var programs = []program{
	{name: "tenure", module: ".", pkg: "./cmd/tenure"},
	{name: "tenure-server", module: ".", pkg: "./cmd/tenure-server"},
	{name: "tenure-sigstore", module: "sigstore", pkg: "."},
	{name: "tenure-cluster", module: "cluster", pkg: ".", links: []string{"kubectl"}, release: "k8s.io/kubernetes"},
	// Other versions of Kubernetes, for tests and for fleets of clusters that have them.
	otherKubernetes("1.33"),
	otherKubernetes("1.34"),
	otherKubernetes("1.35"),
	// Flux's controllers have no variable for a version: the go command records the versions of
	// their modules in the program (go version -m).
	{name: "tenure-flux", module: "cluster/flux", pkg: ".", joins: []joinedProgram{
		{module: flux + "source-controller"}, {module: flux + "kustomize-controller"}, {module: flux + "helm-controller"},
		{module: flux + "notification-controller"}, {module: flux + "image-reflector-controller"},
		{module: flux + "image-automation-controller"}, {module: flux + "source-watcher/v2", folder: "cmd"},
	}},
	// The tests run it as tenants, at the version that helm-controller uses.
	{name: "helm", module: "cluster/flux", pkg: "helm.sh/helm/v4/cmd/helm"},
	// Its manifests are generated before a release. Only `flux install` applies them.
	{name: "flux", module: "hack/fluxmanifests", pkg: "./cmd/flux", release: "github.com/fluxcd/flux2/v2", embeds: "cmd/flux/manifests/none.yaml"},
	// The provider at which the tests log people in, and their login plugin of kubectl.
	{name: "tenure-issuer", module: "hack/issuer", pkg: ".", links: []string{"kubectl-oidc_login"}},
	// Fleets with a FluxInstance need it. It is under the AGPL: it is built where it runs, from
	// its authors' module, and is no part of an image or a release.
	{
		name: "flux-operator", module: "cluster/fluxoperator", pkg: "github.com/controlplaneio-fluxcd/flux-operator/cmd/operator",
		release: "github.com/controlplaneio-fluxcd/flux-operator", variable: "main.VERSION",
		embeds: "web/dist/index.html", folder: "config", copies: "flux-operator-config",
	},
	// Fleets with policies of Kyverno need both programs, and its manifests or its chart.
	{
		name: "kyverno", module: "cluster/kyverno", pkg: kyverno + "/cmd/kyverno",
		release: kyverno, variable: kyverno + "/pkg/version.BuildVersion", folder: "config", copies: "kyverno-config",
	},
	{
		name: "kyverno-background-controller", module: "cluster/kyverno", pkg: kyverno + "/cmd/background-controller",
		release: kyverno, variable: kyverno + "/pkg/version.BuildVersion", folder: "charts", copies: "kyverno-charts",
	},
}

// otherKubernetes returns the control plane of a minor version of Kubernetes that has its own module
// file.
func otherKubernetes(minor string) program {
	return program{name: "tenure-cluster-" + minor, module: "cluster", modfile: "kubernetes-" + minor + ".mod", pkg: ".", release: "k8s.io/kubernetes"}
}

// kyverno is the module of Kyverno's programs.
const kyverno = "github.com/kyverno/kyverno"

// flux is the prefix of the modules of Flux's controllers.
const flux = "github.com/fluxcd/"

func names() []string {
	all := make([]string, 0, len(programs))
	for _, p := range programs {
		all = append(all, p.name)
	}
	return all
}

// selected returns the programs with these names, in the given order. It returns an error
// without a name, so that a typo in the Makefile does not pass as a build.
func selected(args []string) ([]program, error) {
	if len(args) == 0 {
		return nil, fmt.Errorf("cannot build: name at least one of %s", strings.Join(names(), ", "))
	}
	chosen := make([]program, 0, len(args))
	for _, name := range args {
		i := slices.IndexFunc(programs, func(p program) bool { return p.name == name })
		if i < 0 {
			return nil, fmt.Errorf("cannot build %s: there is no such program, only %s", name, strings.Join(names(), ", "))
		}
		chosen = append(chosen, programs[i])
	}
	return chosen, nil
}

// ldflags returns the link flags of a program. They leave out the symbol tables (-s -w), which
// makes the programs a third smaller. The compiler ignores them, so tests and plain go build
// share the build cache.
func (p program) ldflags(root string) (string, error) {
	flags := "-s -w"
	if p.release == "" {
		return flags, nil
	}
	file := filepath.Join(root, p.module, cmp.Or(p.modfile, "go.mod"))
	content, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("cannot read the version of %s: %w", p.release, err)
	}
	version, err := requirement(string(content), p.release)
	if err != nil {
		return "", fmt.Errorf("cannot read the version of %s from %s: %w", p.release, file, err)
	}
	if p.variable != "" {
		return flags + " -X " + p.variable + "=" + version, nil
	}
	if p.embeds != "" {
		return flags + " -X main.VERSION=" + strings.TrimPrefix(version, "v"), nil
	}
	major, minor, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	// Kubernetes programs built without these report v0.0.0-master, which every
	// check of a server's version refuses. The second package is kubectl's user
	// agent.
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags += fmt.Sprintf(" -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s -X %[1]s.gitTreeState=clean -X %[1]s.gitCommit=",
			pkg, version, major, minor)
	}
	return flags, nil
}

// word matches a version or a repository. These have no spaces: the linker would take the text
// after a space as another flag.
var word = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/+-]*$`)

// stampFlags returns the linker flags that set the variables of internal/release.
func stampFlags(version, repository string) (string, error) {
	const pkg = "github.com/tenure-dev/tenure/internal/release"
	flags := ""
	for _, v := range []struct{ name, value string }{{"version", version}, {"repository", repository}} {
		if v.value == "" {
			continue
		}
		if !word.MatchString(v.value) {
			return "", fmt.Errorf("cannot take %q as the %s", v.value, v.name)
		}
		flags += " -X " + pkg + "." + v.name + "=" + v.value
	}
	return flags, nil
}

// release matches a version without a pre-release or build suffix. A server with another
// version would report a version that is not a Kubernetes release.
var release = regexp.MustCompile(`^v\d+\.\d+\.\d+$`)

// requirement returns the version at which a go.mod requires a module.
func requirement(gomod, module string) (string, error) {
	for line := range strings.Lines(gomod) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(fields) < 2 || fields[0] != module {
			continue
		}
		if !release.MatchString(fields[1]) {
			return "", fmt.Errorf("%s is not a release", fields[1])
		}
		return fields[1], nil
	}
	return "", fmt.Errorf("the module is not required there")
}
