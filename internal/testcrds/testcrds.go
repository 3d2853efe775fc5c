// Package testcrds holds the definitions of kinds that tenants use and that are neither
// Kubernetes' nor Flux's, for tests.
package testcrds

import _ "embed"

//go:generate go -C ../../hack/testcrds run .

var (
	//go:embed gateway-api.yaml
	gatewayAPI []byte
	//go:embed flagger.yaml
	flagger []byte
)

// GatewayAPI are the definitions of Gateway API's standard channel. Multi-document
// YAML.
func GatewayAPI() []byte { return gatewayAPI }

// Flagger are the definitions of Flagger's kinds. Multi-document YAML.
func Flagger() []byte { return flagger }
