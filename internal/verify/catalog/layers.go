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
	// Name is the name of the control, such as "flag --no-cross-namespace-refs".
	Name string
	// Holds reports whether the control is in force. It returns an error if it cannot find out.
	Holds func(context.Context, *Scenario) (bool, error)
}

// flagLayer returns the layer of a flag that a controller runs with.
func flagLayer(f Flag) Layer {
	flag, _, _ := strings.Cut(f.Flag, "=")
	return Layer{Name: "flag " + flag + " of " + f.Controller, Holds: func(ctx context.Context, e *Scenario) (bool, error) {
		return e.runsWith(ctx, f)
	}}
}

// admissionLayer returns the layer of a policy that refuses an object, whatever Flux would decide about it:
// the policy refuses both to create the object and to change an allowed Flux object into it.
func admissionLayer(name string, make func(*Scenario) *unstructured.Unstructured) Layer {
	return Layer{Name: name, Holds: func(ctx context.Context, e *Scenario) (bool, error) {
		u := make(e)
		f := judge(aboutAttack(ctx, creating(make)(ctx, e), func(ctx context.Context) error {
			if own := e.ordinary(ctx, u.GetKind()); own != nil {
				return e.tryIntact(ctx, own)
			}
			return nil
		}), "")
		if f.Outcome == NotProven {
			return false, fmt.Errorf("cannot tell: %s", f.Reason)
		}
		return f.Outcome == Stopped, nil
	}}
}

// runsWith reports whether a controller's Deployment has the flag. If the flag is repeated, the last
// occurrence counts. If the flag takes a name, such as the name of an account, any name counts; an empty
// name switches the flag off.
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

// lastValue returns the value of the last occurrence of a flag: true for a flag without a value, and "" if
// the flag does not occur.
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

// gateIsOn reports whether a feature gate is switched on. All occurrences of the flag count, and the last
// occurrence of a gate decides.
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

// sets reports whether arguments set a flag. The last occurrence counts. The value may be a separate
// argument, except for a boolean flag, which may also have no value. If the flag takes a name, such as the
// name of the default account, any name counts: the attacks show the rights of that account.
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

// missingLayers returns the names of the attack's layers that do not hold.
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
