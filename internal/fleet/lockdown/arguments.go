package lockdown

import (
	"fmt"
	"slices"
	"strings"
)

// argument is an argument that the component adds to controllers.
type argument struct {
	// Why are the lines of a comment.
	Why []string
	// Deployments is a regular expression for the names of the controllers.
	Deployments string
	// Value is the argument.
	Value string
}

// arguments are the arguments of the component, each for the controllers that have its flag in
// [Flags]. The flag of source-controller needs an environment variable, and has a patch of its own, as
// have the variables of kustomize-controller.
func (c *component) arguments() []argument {
	return []argument{
		{Value: "--no-cross-namespace-refs=true", Why: []string{"Objects cannot refer to objects of another namespace."}},
		{Value: "--no-remote-bases=true", Why: []string{"A kustomization.yaml cannot fetch a base from a URL, which no rule would check."}},
		{Value: "--default-service-account=" + c.DefaultAccount, Why: []string{"Flux applies objects that name no service account with this one, which has no rights."}},
		{Value: gates + "ExternalArtifact=true", Why: []string{"The platform shares sources with tenants as ExternalArtifacts."}},
		{Value: gates + "DisableConfigWatchers=true", Why: []string{
			"The controllers cannot list Secrets. Therefore Flux sees a change of a Secret or ConfigMap",
			"at the next interval, even if it has the label reconcile.fluxcd.io/watch.",
		}},
	}
}

// Arguments returns the arguments that the fleet does not set itself. A fleet that has no Deployment
// of a controller gets them for that controller, too.
func (c *component) Arguments() []argument {
	var missing []argument
	for _, a := range c.arguments() {
		var names []string
		for _, f := range Flags() {
			if strings.HasPrefix(a.Value, f.Name+"=") && !c.sets(f) {
				names = append(names, f.Controller)
			}
		}
		switch a.Deployments = strings.Join(names, "|"); {
		case len(names) == 0:
			continue
		case len(names) > 1:
			a.Deployments = "(" + a.Deployments + ")"
		}
		missing = append(missing, a)
	}
	return missing
}

// Serves reports whether the component sets the address of source-controller.
func (c *component) Serves() bool {
	return !c.sets(Flag{Controller: "source-controller", Name: storageFlag})
}

// HidesMetrics reports whether the component sets the address of kustomize-controller's metrics.
func (c *component) HidesMetrics() bool {
	return !c.sets(Flag{Controller: kustomizeController, Name: metricsFlag})
}

// Closed reports whether the component takes the way to other hosts from kustomize-controller. It
// leaves a proxy of the fleet: the network may have no other way out.
func (c *component) Closed() bool {
	return c.FleetProxy == "" && slices.ContainsFunc(proxyVariables, func(name string) bool {
		return !c.sets(Flag{Controller: kustomizeController, Name: name})
	})
}

// LimitsGit reports whether the component limits the protocols of kustomize-controller's git.
func (c *component) LimitsGit() bool {
	return !c.sets(Flag{Controller: kustomizeController, Name: gitVariable})
}

// sets reports whether the fleet sets a flag of a controller as the component would.
func (c *component) sets(f Flag) bool {
	return slices.ContainsFunc(c.Set, func(s FlagState) bool { return s.Controller == f.Controller && s.Name == f.Name })
}

// setBy returns the flags that the fleet sets itself as the component would, in whatever form: in
// Flux's manifests or by patches. With shards it returns none, since a patch for one Deployment
// may leave out the copies for the shards.
func (c *component) setBy(plain *survey) []FlagState {
	if len(c.Shards) > 0 {
		return nil
	}
	return slices.DeleteFunc(FlagStates(plain.system()), func(s FlagState) bool {
		return !s.OK() || s.Name == defaultAccountFlag && s.Got != c.DefaultAccount
	})
}

// setNote returns a note about the flags that the component leaves out, or "".
func (c *component) setNote() string {
	if len(c.Set) == 0 {
		return ""
	}
	var names []string
	for _, s := range c.Set {
		names = append(names, s.Deployment+" "+s.Name)
	}
	return fmt.Sprintf("the fleet sets these flags itself, and the profile leaves them out: %s; run this again if you take one away", listed(names))
}
