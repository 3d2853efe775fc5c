package capsule

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestFieldsCoverTheCRD checks that every field of a CRD's spec has an entry, and that every
// entry is a field in each version of the CRD.
func TestFieldsCoverTheCRD(t *testing.T) {
	t.Parallel()
	objects, err := flux.ReadObjects(config.CapsuleCRDs())
	if err != nil {
		t.Fatal(err)
	}
	if len(objects) != 8 {
		t.Fatalf("%d CRDs, want 8", len(objects))
	}
	for _, crd := range objects {
		kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
		versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
		for _, v := range versions {
			version := v.(map[string]any)
			schema, _, _ := unstructured.NestedMap(version, "schema", "openAPIV3Schema", "properties", "spec")
			paths := all("spec", schema)
			fields := Fields(kind)
			for _, path := range paths {
				leaf := !slices.ContainsFunc(paths, func(other string) bool { return other != path && below(other, path) })
				if leaf && !slices.ContainsFunc(fields, func(f Field) bool { return below(path, f.Path) }) {
					t.Errorf("%s %s: %s has no entry", kind, version["name"], path)
				}
			}
			for i, f := range fields {
				if !slices.Contains(paths, f.Path) {
					t.Errorf("%s %s: %s is not in the CRD", kind, version["name"], f.Path)
				}
				if slices.ContainsFunc(fields[:i], func(other Field) bool { return other.Path == f.Path }) {
					t.Errorf("%s: %s has two entries", kind, f.Path)
				}
			}
		}
	}
}

// all returns the paths of all fields of a schema.
func all(path string, schema map[string]any) []string {
	paths := []string{path}
	properties, _, _ := unstructured.NestedMap(schema, "properties")
	for name, p := range properties {
		paths = append(paths, all(path+"."+name, p.(map[string]any))...)
	}
	if items, ok, _ := unstructured.NestedMap(schema, "items"); ok && !strings.HasSuffix(path, "[]") {
		paths = append(paths, all(path+"[]", items)...)
	}
	return paths
}

// shown names the tests, by folder, that show what [Fields] says about each field of a kind. An entry covers the
// fields below it that have no entry of their own. The kind rule is a rule of spec.rules.
var shown = map[string]map[string]string{
	"Tenant": {
		"spec":                        "internal/manager TestCapsuleEveryField",
		"spec.owners[].proxySettings": "internal/capsule TestOwnersProxySettings",
		"spec.data":                   "internal/capsule TestFieldsSpeak",
		"spec.ingressOptions.allowWildcardHostnames": "internal/capsule TestTranslateWithoutWildcards",
		"spec.ingressOptions.hostnameCollisionScope": "internal/manager/capsule TestHosts",
	},
	"rule": {
		"audience":                                 "internal/admission TestCapsuleRulesOfCustomAudiences",
		"namespaceSelector":                        "internal/manager/capsule TestRuleStatus",
		"enforce.action":                           "internal/admission TestCapsuleRulesOfServices",
		"enforce.workloads.targets":                "internal/admission TestCapsuleRulesOfPods",
		"enforce.workloads.qosClasses":             "internal/admission TestCapsuleRulesOfPods",
		"enforce.workloads.registries[]":           "internal/admission TestCapsuleRulesOfPods",
		"enforce.workloads.schedulers[]":           "internal/admission TestCapsuleRulesOfPods",
		"enforce.workloads.resources":              "internal/admission TestCapsuleRulesOfResources",
		"enforce.services.types":                   "internal/admission TestCapsuleRulesOfServices",
		"enforce.services.loadBalancers.cidrs":     "internal/admission TestCapsuleRulesOfServices",
		"enforce.services.externalNames.hostnames": "internal/admission TestCapsuleRulesOfServices",
		"enforce.services.nodePorts.ports":         "internal/admission TestCapsuleRulesOfServices",
		"enforce.ingress.types":                    "internal/admission TestCapsuleRulesOfHosts",
		"enforce.ingress.hostnames":                "internal/admission TestCapsuleRulesOfHosts",
		"enforce.metadata":                         "internal/admission TestCapsuleRulesOfMetadata",
		"enforce.metadata[].labels{}.default":      "internal/capsule TestSetMetadata",
		"enforce.metadata[].annotations{}.default": "internal/capsule TestSetMetadata",
		"enforce.metadata[].labels{}.managed":      "internal/admission TestCapsuleRulesOfManagedMetadata",
		"enforce.metadata[].annotations{}.managed": "internal/admission TestCapsuleRulesOfManagedMetadata",
		"permissions.bindings":                     "internal/capsule TestTranslateRules",
		"permissions.promotions":                   "internal/capsule TestEntitlements",
		"quota":                                    "internal/capsule TestTranslateRules",
	},
	"CapsuleConfiguration": {
		"spec.userGroups":                      "internal/capsule TestUsers",
		"spec.userNames":                       "internal/capsule TestUsers",
		"spec.users":                           "internal/capsule TestUsers",
		"spec.ignoreUserWithGroups":            "internal/manager/capsule TestIgnored",
		"spec.administrators":                  "internal/capsule TestAdministrators",
		"spec.forceTenantPrefix":               "internal/capsule TestTranslate",
		"spec.protectedNamespaceRegex":         "internal/capsule TestProtectedNames",
		"spec.allowServiceAccountPromotion":    "internal/capsule TestPromotions",
		"spec.nodeMetadata":                    "internal/manager/capsule TestPolicies",
		"spec.rbac.administrationClusterRoles": "internal/capsule TestAdministrators",
		"spec.rbac.promotionClusterRoles":      "internal/capsule TestPromotions",
		"spec.rbac.deleter":                    "internal/capsule TestFieldsSpeak",
	},
	"TenantOwner": {
		"spec":           "internal/capsule TestTenantOwners",
		"spec.aggregate": "internal/capsule TestUsers",
	},
	"TenantResource": replicationTests(nil),
	"GlobalTenantResource": replicationTests(map[string]string{
		"spec.scope":          "internal/manager/replication TestOnce",
		"spec.tenantSelector": "internal/manager/replication TestCapsule",
	}),
	"ProxySetting":        {"spec.subjects": "internal/capsule TestProxySettingObjects"},
	"GlobalProxySettings": {"spec.rules": "internal/capsule TestProxySettingObjects"},
}

// replicationTests returns the entries of both kinds of replication, and those of one kind.
func replicationTests(more map[string]string) map[string]string {
	tests := map[string]string{
		"spec.resources[].namespaceSelector":  "internal/manager/replication TestSelectedNamespaces",
		"spec.resources[].additionalMetadata": "internal/manager/replication TestCapsule",
		"spec.resources[].rawItems":           "internal/manager/replication TestCapsule",
		"spec.resources[].namespacedItems":    "internal/manager/replication TestNamespacedItems",
		"spec.resources[].generators":         "internal/manager/replication TestCapsule",
		"spec.resources[].context":            "internal/manager/replication TestContextIsRead",
		"spec.resyncPeriod":                   "internal/manager/replication TestPeriod",
		"spec.pruningOnDelete":                "internal/manager/replication TestCapsule",
		"spec.cordoned":                       "internal/manager/replication TestCordonedDeclaration",
		"spec.dependsOn":                      "internal/manager/replication TestCapsule",
		"spec.settings":                       "internal/manager/replication TestSettings",
		"spec.serviceAccount":                 "internal/manager/replication TestTenantResourceAccounts",
	}
	maps.Copy(tests, more)
	return tests
}

// TestFieldsAreShown checks that a test, which exists, shows each field that is not [Unused], and that each
// entry in the list of tests is about a field.
func TestFieldsAreShown(t *testing.T) {
	t.Parallel()
	objects, err := flux.ReadObjects(config.CapsuleCRDs())
	if err != nil {
		t.Fatal(err)
	}
	paths := map[string][]string{"rule": ruleFields("", reflect.TypeFor[tenantRule]())[1:]}
	for _, crd := range objects {
		kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
		versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
		for _, v := range versions {
			schema, _, _ := unstructured.NestedMap(v.(map[string]any), "schema", "openAPIV3Schema", "properties", "spec")
			paths[kind] = append(paths[kind], all("spec", schema)...)
		}
	}
	for kind, have := range paths {
		fields := Fields(kind)
		for _, path := range have {
			leaf := !slices.ContainsFunc(have, func(other string) bool { return other != path && below(other, path) })
			unused := slices.ContainsFunc(fields, func(f Field) bool { return f.State == Unused && below(path, f.Path) })
			covered := false
			for of := range shown[kind] {
				covered = covered || below(path, of)
			}
			if leaf && !unused && !covered {
				t.Errorf("%s: no test shows %s", kind, path)
			}
		}
	}
	tests := map[string]map[string]bool{}
	for kind, entries := range shown {
		for path, test := range entries {
			if !slices.Contains(paths[kind], path) {
				t.Errorf("%s: %s is not a field", kind, path)
			}
			folder, name, _ := strings.Cut(test, " ")
			if tests[folder] == nil {
				tests[folder] = testsIn(t, folder)
			}
			if !tests[folder][name] {
				t.Errorf("%s: %s: there is no test %s in %s", kind, path, name, folder)
			}
		}
	}
}

// testsIn returns the names of the tests in a folder.
func testsIn(t *testing.T, folder string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(folder), "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				names[f.Name.Name] = true
			}
		}
	}
	return names
}

// ruleFields returns the paths of all fields of a type, in the form of [Field.Path], with {} for each value of a map.
// Kubernetes' own types have no fields here.
func ruleFields(path string, of reflect.Type) []string {
	switch of.Kind() {
	case reflect.Pointer:
		return ruleFields(path, of.Elem())
	case reflect.Slice:
		return append([]string{path}, ruleFields(path+"[]", of.Elem())...)
	case reflect.Map:
		return append([]string{path}, ruleFields(path+"{}", of.Elem())...)
	case reflect.Struct:
		paths := []string{path}
		if strings.HasPrefix(of.PkgPath(), "k8s.io/") {
			return paths
		}
		for i := range of.NumField() {
			f := of.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case f.Anonymous:
				paths = append(paths, ruleFields(path, f.Type)...)
				continue
			case name == "":
				name = strings.ToLower(f.Name)
			}
			paths = append(paths, ruleFields(strings.TrimPrefix(path+"."+name, "."), f.Type)...)
		}
		return paths
	default:
		return []string{path}
	}
}
