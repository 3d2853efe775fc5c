package attack

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Layer is a control that stops an attack by itself, where another one does too:
// what is refused by the first never reaches the second, so each is looked at by
// itself.
type Layer struct {
	// Name is the control's, such as "flag --no-cross-namespace-refs".
	Name string
	// Holds says whether it is there.
	Holds func(context.Context, *Env) (bool, error)
}

// flagLayer is a flag that a controller runs with.
func flagLayer(f Flag) Layer {
	flag, _, _ := strings.Cut(f.Flag, "=")
	return Layer{Name: "flag " + flag + " of " + f.Controller, Holds: func(ctx context.Context, e *Env) (bool, error) {
		return e.runsWith(ctx, f)
	}}
}

// admissionLayer is a policy that refuses the object itself, whatever Flux would
// say to it.
func admissionLayer(name string, make func(*Env) *unstructured.Unstructured) Layer {
	return Layer{Name: name, Holds: func(ctx context.Context, e *Env) (bool, error) {
		f := judge(e.tryCreate(ctx, make(e)), "")
		if f.Outcome == NotProven {
			return false, fmt.Errorf("cannot tell: %s", f.Reason)
		}
		return f.Outcome == Stopped, nil
	}}
}

// runsWith says whether a controller's Deployment has the flag. Of a flag that is
// given several times, the last counts. Where the flag names something, such as an
// account, any name does: an empty one switches it off.
func (e *Env) runsWith(ctx context.Context, f Flag) (bool, error) {
	deployment := &appsv1.Deployment{}
	if err := e.Admin.Get(ctx, client.ObjectKey{Namespace: e.Platform, Name: f.Controller}, deployment); err != nil {
		return false, fmt.Errorf("cannot read the flags of %s: %w", f.Controller, err)
	}
	var last string
	flag, want, _ := strings.Cut(f.Flag, "=")
	for _, container := range deployment.Spec.Template.Spec.Containers {
		for _, arg := range slices.Concat(container.Command, container.Args) {
			if name, value, _ := strings.Cut(arg, "="); name == flag {
				if last = arg; value == "" && (want == "true" || want == "false") {
					last = flag + "=true"
				}
			}
		}
	}
	if want != "true" && want != "false" {
		return strings.TrimPrefix(last, flag+"=") != "", nil
	}
	return last == f.Flag, nil
}

// missingLayers names the layers of an attack that do not hold.
func (a Attack) missingLayers(ctx context.Context, e *Env) []string {
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
