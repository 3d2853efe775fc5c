module github.com/tenure-dev/tenure/hack/testcrds

go 1.26.6

require (
	github.com/fluxcd/flagger v1.43.0
	sigs.k8s.io/gateway-api v1.6.3
	sigs.k8s.io/network-policy-api v0.3.0
	sigs.k8s.io/yaml v1.6.0
)

require go.yaml.in/yaml/v2 v2.4.4 // indirect
