// Package testcrds holds the CustomResourceDefinitions that tenants use and that belong
// neither to Kubernetes nor to Flux, for tests.
package testcrds

import _ "embed"

//go:generate go -C ../../hack/testcrds run .

var (
	//go:embed gateway-api.yaml
	gatewayAPI []byte
	//go:embed flagger.yaml
	flagger []byte
)

// GatewayAPI returns the definitions of Gateway API's standard channel, as multi-document
// YAML.
func GatewayAPI() []byte { return gatewayAPI }

// Flagger returns the definitions of Flagger's kinds, as multi-document YAML.
func Flagger() []byte { return flagger }
