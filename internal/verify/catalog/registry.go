package catalog

import (
	"cmp"
	"slices"
	"sync"
)

// The catalogue. It is built once, because the parts of an attack may share state.
var (
	buildCatalogue sync.Once
	catalogue      []Attack
)

// Catalogue returns all attacks, sorted by area, number, path and kind.
func Catalogue() []Attack {
	buildCatalogue.Do(func() {
		register := func(attacks ...Attack) { catalogue = append(catalogue, attacks...) }
		for _, add := range registry() {
			add(register)
		}
		for i := range catalogue {
			catalogue[i].Kinds = slices.Clone(catalogue[i].Kinds)
			slices.Sort(catalogue[i].Kinds)
		}
		slices.SortStableFunc(catalogue, func(a, b Attack) int {
			return cmp.Or(cmp.Compare(a.ID[0], b.ID[0]), cmp.Compare(len(a.ID), len(b.ID)), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Via, b.Via), cmp.Compare(a.Kind, b.Kind))
		})
	})
	return slices.Clone(catalogue)
}
