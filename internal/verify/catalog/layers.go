package catalog

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Layer is one of several controls that each stop an attack alone. A request that the first
// control refuses never reaches the second, so each layer is checked separately.
type Layer struct {
	// Name is the control's, such as "flag --no-cross-namespace-refs".
	Name string
	// Holds says whether it is there.
	Holds func(context.Context, *Scenario) (bool, error)
}

// flagLayer is a flag that a controller runs with.
func flagLayer(f Flag) Layer {
	flag, _, _ := strings.Cut(f.Flag, "=")
	return Layer{Name: "flag " + flag + " of " + f.Controller, Holds: func(ctx context.Context, e *Scenario) (bool, error) {
		return e.runsWith(ctx, f)
	}}
}

// admissionLayer is a policy that refuses the object itself, whatever Flux would
// say to it: its creation, and the change of an allowed object of Flux into it.
func admissionLayer(name string, make func(*Scenario) *unstructured.Unstructured) Layer {
	return Layer{Name: name, Holds: func(ctx context.Context, e *Scenario) (bool, error) {
		f := judge(creating(make)(ctx, e), "")
		if f.Outcome == NotProven {
			return false, fmt.Errorf("cannot tell: %s", f.Reason)
		}
		return f.Outcome == Stopped, nil
	}}
}

// runsWith says whether a controller's Deployment has the flag. Of a flag that is
// given several times, the last counts. Where the flag names something, such as an
// account, any name does: an empty one switches it off.
func (e *Scenario) runsWith(ctx context.Context, f Flag) (bool, error) {
	args, err := e.arguments(ctx, f.Controller)
	return err == nil && sets(args, f.Flag), err
}

// arguments returns the command-line arguments of a controller.
func (e *Scenario) arguments(ctx context.Context, controller string) ([]string, error) {
	deployment := &appsv1.Deployment{}
	if err := e.Admin.Get(ctx, client.ObjectKey{Namespace: e.Platform, Name: controller}, deployment); err != nil {
		return nil, fmt.Errorf("cannot read the flags of %s: %w", controller, err)
	}
	var args []string
	for _, container := range deployment.Spec.Template.Spec.Containers {
		args = append(args, container.Command...)
		args = append(args, container.Args...)
	}
	return args, nil
}

// lastValue is the value of a flag's last mention, true for one without a value,
// and empty if there is none.
func lastValue(args []string, flag string) string {
	var last string
	for _, arg := range args {
		if name, value, given := strings.Cut(arg, "="); name == flag {
			if last = value; !given {
				last = "true"
			}
		}
	}
	return last
}

// gateIsOn says whether a feature gate is switched on. Mentions of the flag add
// up, and the last one of a gate counts.
func gateIsOn(args []string, gate string) bool {
	var on bool
	for _, arg := range args {
		gates, ok := strings.CutPrefix(arg, "--feature-gates=")
		if !ok {
			continue
		}
		for g := range strings.SplitSeq(gates, ",") {
			if name, value, _ := strings.Cut(strings.TrimSpace(g), "="); name == gate {
				on, _ = strconv.ParseBool(value)
			}
		}
	}
	return on
}

// sets says whether arguments set a flag, of which the last counts. Its value may
// be an argument of its own, unless it is a boolean, and a boolean may go
// without. Where a flag names something, such as the default account, any name
// does: what that account may do shows in the attacks.
func sets(args []string, flag string) bool {
	name, want, _ := strings.Cut(flag, "=")
	wanted, notBool := strconv.ParseBool(want)
	var last string
	for i, arg := range args {
		got, value, joined := strings.Cut(arg, "=")
		switch {
		case got != name:
			continue
		case !joined && notBool == nil:
			value = "true"
		case !joined && i+1 < len(args):
			value = args[i+1]
		}
		last = value
	}
	if notBool == nil {
		got, err := strconv.ParseBool(last)
		return err == nil && got == wanted
	}
	return last != ""
}

// missingLayers names the layers of an attack that do not hold.
func (a Attack) missingLayers(ctx context.Context, e *Scenario) []string {
	var missing []string
	for _, layer := range a.Layers {
		if holds, err := layer.Holds(ctx, e); err != nil {
			missing = append(missing, layer.Name+" ("+firstLine(err.Error())+")")
		} else if !holds {
			missing = append(missing, layer.Name)
		}
	}
	return missing
}
