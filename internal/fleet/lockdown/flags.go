package lockdown

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"
)

// Flag is a flag, or an environment variable, that a controller of Flux needs.
type Flag struct {
	// Controller is the name of its Deployment.
	Controller string
	// Name is the flag's with its dashes, or the variable's; a feature gate is written
	// --feature-gates=NAME.
	Name string
	// Value is the required value; empty requires any value.
	Value string
}

// Flags returns all flags of the lockdown, by controller.
func Flags() []Flag {
	// This listens on the address of the Pod, not on the loopback address.
	all := []Flag{{"source-controller", storageFlag, "$(TENURE_POD_NAME):9090"}}
	for _, c := range []string{"kustomize-controller", "helm-controller", "notification-controller", "image-reflector-controller", "image-automation-controller", "source-watcher"} {
		all = append(all, Flag{c, "--no-cross-namespace-refs", "true"})
		if c == "kustomize-controller" {
			// This listens on the address of the Pod too: kustomize-controller fetches the URLs in a kustomization.yaml.
			all = append(all, Flag{c, "--no-remote-bases", "true"}, Flag{c, metricsFlag, "$(TENURE_POD_NAME):8080"})
			all = append(all, Flag{c, httpVariable, ArtifactProxy}, Flag{c, httpsVariable, NoProxyThere}, Flag{c, gitVariable, gitProtocols})
		}
		if c == "kustomize-controller" || c == "helm-controller" {
			all = append(all, Flag{c, defaultAccountFlag, ""}, Flag{c, gates + "ExternalArtifact", "true"})
		}
		if c == "kustomize-controller" || c == "helm-controller" || c == "notification-controller" {
			all = append(all, Flag{c, gates + "DisableConfigWatchers", "true"})
		}
	}
	return all
}

const gates = "--feature-gates="

// defaultAccountFlag is the account for objects that name none.
const defaultAccountFlag = "--default-service-account"

// storageFlag is the address at which source-controller serves artifacts.
const storageFlag = "--storage-addr"

// metricsFlag is the address at which a controller serves its metrics and profiles.
const metricsFlag = "--metrics-addr"

// minimum is the first version of each controller that has all of its flags: Flux 2.7.5.
var minimum = map[string]string{
	"kustomize-controller":    "1.7.3",
	"helm-controller":         "1.4.4",
	"notification-controller": "1.7.5",
}

// isVariable reports whether the flag is an environment variable.
func (f Flag) isVariable() bool { return !strings.HasPrefix(f.Name, "-") }

// FlagState is the state of a flag of a controller.
type FlagState struct {
	Flag
	// Deployment is the name of the Deployment. The Deployment of a shard has another name
	// than its controller.
	Deployment string
	// Got is the value in force, empty when the flag is missing.
	Got string
	// Overridden reports that the flag has the right value, but a later argument overrides it.
	Overridden bool
}

// OK reports whether the flag is in force.
func (s FlagState) OK() bool { return s.Got != "" && (s.Value == "" || s.Got == s.Value) }

// String describes the state of the flag for people.
func (s FlagState) String() string {
	switch {
	case s.OK():
		return "in force"
	case s.Overridden:
		return fmt.Sprintf("set, but %s comes later and overrides it: remove it", s.Got)
	case s.Got != "":
		return "is " + s.Got
	}
	return "missing"
}

// FlagStates returns the states of the flags for the controllers of Flux among the objects.
func FlagStates(objects []*unstructured.Unstructured) []FlagState {
	var all []FlagState
	for _, o := range objects {
		if o.GetKind() != "Deployment" {
			continue
		}
		args := arguments(o)
		for _, f := range Flags() {
			if f.Controller != controllerOf(o) {
				continue
			}
			values := valuesOf(args, f.Name)
			if value, set := environment(o, f.Name); f.isVariable() && set {
				values = []string{value}
			}
			s := FlagState{Flag: f, Deployment: o.GetName()}
			if len(values) > 0 {
				s.Got = values[len(values)-1]
				s.Overridden = f.Value != "" && !s.OK() && slices.Contains(values, f.Value)
			}
			all = append(all, s)
		}
	}
	slices.SortStableFunc(all, func(a, b FlagState) int { return strings.Compare(a.Deployment, b.Deployment) })
	return all
}

// arguments returns the arguments of a Deployment's first container, which is Flux's.
func arguments(o *unstructured.Unstructured) []string {
	containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	if len(containers) == 0 {
		return nil
	}
	container, _ := containers[0].(map[string]any)
	args, _, _ := unstructured.NestedStringSlice(container, "args")
	return args
}

// valuesOf returns the values of a flag in the arguments, in order. --flag means true, and the
// value may be the next argument.
func valuesOf(args []string, name string) []string {
	var values []string
	gate, isGate := strings.CutPrefix(name, gates)
	for i, arg := range args {
		flag, value, written := strings.Cut("--"+strings.TrimLeft(arg, "-"), "=")
		if !strings.HasPrefix(arg, "-") {
			continue
		}
		if !written {
			value = "true"
			if i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
				value = args[i+1]
			}
		}
		switch {
		case isGate && flag == strings.TrimSuffix(gates, "="):
			for _, set := range strings.Split(value, ",") {
				if n, v, _ := strings.Cut(strings.TrimSpace(set), "="); n == gate {
					values = append(values, strings.ToLower(v))
				}
			}
		case !isGate && flag == name && (written && value == "" || value != ""):
			values = append(values, value)
		}
	}
	return values
}

// VersionOf returns the version of a controller from the tag of its image. It returns false if
// there is no tag, as with a digest alone.
func VersionOf(o *unstructured.Unstructured) (*version.Version, bool) {
	containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	if len(containers) == 0 {
		return nil, false
	}
	container, _ := containers[0].(map[string]any)
	image, _ := container["image"].(string)
	image, _, _ = strings.Cut(image, "@")
	name := image[strings.LastIndex(image, "/")+1:]
	_, tag, found := strings.Cut(name, ":")
	v, err := version.ParseSemantic(tag)
	return v, found && err == nil
}

// TooOld returns messages about the controllers whose version lacks a flag.
func TooOld(objects []*unstructured.Unstructured) []string {
	var old []string
	for _, o := range objects {
		least, known := minimum[controllerOf(o)]
		if o.GetKind() != "Deployment" || !known {
			continue
		}
		if v, ok := VersionOf(o); ok && v.LessThan(version.MustParseSemantic(least)) {
			old = append(old, fmt.Sprintf("%s is %s and needs %s", o.GetName(), v, least))
		}
	}
	return old
}
