package config

import _ "embed"

var (
	//go:embed capsule/crd/capsule.clastix.io_capsuleconfigurations.yaml
	capsuleConfigurationCRD string
	//go:embed capsule/crd/capsule.clastix.io_globalproxysettings.yaml
	capsuleGlobalProxySettingsCRD string
	//go:embed capsule/crd/capsule.clastix.io_globaltenantresources.yaml
	capsuleGlobalTenantResourceCRD string
	//go:embed capsule/crd/capsule.clastix.io_proxysettings.yaml
	capsuleProxySettingCRD string
	//go:embed capsule/crd/capsule.clastix.io_tenantowners.yaml
	capsuleTenantOwnerCRD string
	//go:embed capsule/crd/capsule.clastix.io_tenantresources.yaml
	capsuleTenantResourceCRD string
	//go:embed capsule/crd/capsule.clastix.io_tenants.yaml
	capsuleTenantCRD string
	//go:embed capsule/rbac.yaml
	capsuleRights string
	//go:embed capsule/admission.yaml
	capsulePolicies string
	//go:embed capsule/rules.yaml
	capsuleTenantRules string
	//go:embed capsule/crd/capsule.clastix.io_rulestatuses.yaml
	capsuleRuleStatusCRD string
)

// CapsuleCRDs are the definitions of Capsule's kinds (capsule.clastix.io), an
// optional component: see internal/capsule. Multi-document YAML.
func CapsuleCRDs() []byte {
	return []byte(capsuleConfigurationCRD + capsuleGlobalProxySettingsCRD + capsuleGlobalTenantResourceCRD +
		capsuleProxySettingCRD + capsuleRuleStatusCRD + capsuleTenantOwnerCRD + capsuleTenantResourceCRD + capsuleTenantCRD)
}

// CapsulePolicies are the rules for Capsule's kinds, and the rules of its Tenants, that the API
// server enforces. Multi-document YAML.
func CapsulePolicies() []byte { return []byte(capsulePolicies + "---\n" + capsuleTenantRules) }

// CapsuleRoles are the roles of the optional component: the roles that Capsule's owners have by
// default, and the additional roles of `tenure-server manager --capsule` and `tenure-server proxy
// --capsule`: see [Manager] and [Proxy]. Multi-document YAML.
func CapsuleRoles() []byte { return []byte(capsuleRights) }
