package catalog

import (
	"fmt"
	"strings"
)

// The list of the attacks comes first, since the page reads it.
//go:generate go run ../../../hack/registry . zz_generated.registry.go
//go:generate go run ../../../hack/attacks ../../../docs/reference/attacks.md

// Document returns the catalogue as a page of Markdown.
func Document() string {
	var b strings.Builder
	b.WriteString(`# The catalogue of attacks

What ` + "`tenure verify`" + ` tries as each tenant. Generated from internal/verify/catalog; do not
edit. The kinds are those that the attack tries, where the cluster has them; \* is any kind, of
which the attack tries one.

| Id | Through | The tenant … | Kinds | Controls that stop it | References |
|---|---|---|---|---|---|
`)
	ways := map[Via]string{API: "API", Git: "Git", Proxy: "proxy"}
	for _, a := range Catalogue() {
		way := ways[a.Via]
		if a.Kind != "" {
			way += ", " + a.Kind
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", a.ID, way, a.Title, strings.ReplaceAll(strings.Join(a.Kinds, ", "), "*", `\*`), strings.Join(a.Controls, "; "), strings.Join(a.References, "; "))
	}
	return b.String()
}
