// Package suite pins the version of Capsule whose end-to-end tests hack/capsulesuite runs. It is a
// separate module, so that Tenure's programs do not depend on Capsule or on what its tests import. No program
// imports the package: its imports keep the requirements of the tests in go.mod.
package suite

import (
	_ "github.com/onsi/ginkgo/v2"
	_ "github.com/onsi/gomega"
	_ "github.com/projectcapsule/capsule/api/v1beta2"
	_ "github.com/projectcapsule/capsule/pkg/api"
	_ "github.com/projectcapsule/capsule/pkg/runtime/client"
	_ "github.com/projectcapsule/capsule/pkg/runtime/configuration"
	_ "github.com/projectcapsule/capsule/pkg/template"
	_ "github.com/projectcapsule/capsule/pkg/tenant"
	_ "github.com/stretchr/testify/assert"
	_ "k8s.io/api/extensions/v1beta1"
	_ "k8s.io/apiserver/pkg/authentication/serviceaccount"
	_ "sigs.k8s.io/controller-runtime/pkg/envtest"
	_ "sigs.k8s.io/gateway-api/apis/v1"
)
