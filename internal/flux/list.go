package flux

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrNotInstalled is returned for a kind that the cluster does not know: Flux,
// or the controller that the kind belongs to, is not installed.
var ErrNotInstalled = errors.New("the cluster does not have this kind: is flux installed?")

// Selection selects objects.
type Selection struct {
	// Kinds to look at; none means [AllKinds].
	Kinds []Kind
	// Namespace to look in; "" means all.
	Namespace string
	// Name of the object; "" means every name.
	Name string
	// Labels that objects must have; nil means any.
	Labels labels.Selector
}

func (s Selection) kinds() []Kind {
	if len(s.Kinds) == 0 {
		return AllKinds()
	}
	return s.Kinds
}

func (s Selection) options() []client.ListOption {
	opts := []client.ListOption{client.InNamespace(s.Namespace)}
	if s.Labels != nil {
		opts = append(opts, client.MatchingLabelsSelector{Selector: s.Labels})
	}
	return opts
}

// List returns the rows of the selected objects, sorted. If one kind alone is selected and the
// cluster does not serve it, the error is [ErrNotInstalled]. If several kinds are selected, a kind
// that the cluster does not serve has no rows.
func List(ctx context.Context, c client.Reader, selection Selection) ([]Row, error) {
	var rows []Row
	for _, kind := range selection.kinds() {
		_, found, err := listKind(ctx, c, kind, selection)
		if errors.Is(err, ErrNotInstalled) && len(selection.Kinds) != 1 {
			continue
		}
		if err != nil {
			return nil, err
		}
		rows = append(rows, found...)
	}
	SortRows(rows)
	return rows, nil
}

// listKind also returns the list, for its resource version.
func listKind(ctx context.Context, c client.Reader, kind Kind, selection Selection) (client.ObjectList, []Row, error) {
	info, ok := infoOf(kind)
	if !ok {
		return nil, nil, fmt.Errorf("cannot list %q: it is none of flux's kinds", kind)
	}
	list := info.newList()
	err := c.List(ctx, list, selection.options()...)
	d, ok := c.(discovering)
	if apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err) || ok && apierrors.IsForbidden(err) && d.missing(info.version, info.plural) {
		return nil, nil, fmt.Errorf("cannot list %s: %w", info.plural, ErrNotInstalled)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("cannot list %s: %w", info.plural, err)
	}
	var rows []Row
	err = apimeta.EachListItem(list, func(item runtime.Object) error {
		obj, ok := item.(client.Object)
		if !ok || selection.Name != "" && obj.GetName() != selection.Name {
			return nil
		}
		if row, ok := describe(obj); ok {
			rows = append(rows, row)
		}
		return nil
	})
	return list, rows, err
}
