package capsule

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/api/capsule/v1beta1"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestProxySettings checks that the status of the proxy's settings names the fields without
// effect.
func TestProxySettings(t *testing.T) {
	t.Parallel()
	c, config := cluster(t)
	apply(t, config, `{apiVersion: v1, kind: Namespace, metadata: {name: settings}}
---
{apiVersion: capsule.clastix.io/v1beta1, kind: ProxySetting, metadata: {name: all, namespace: settings}, spec: {subjects: [{kind: User, name: ann, proxySettings: [{kind: Nodes, operations: [List]}]}]}}
---
{apiVersion: capsule.clastix.io/v1beta1, kind: ProxySetting, metadata: {name: some, namespace: settings}, spec: {subjects: [{kind: User, name: ann, proxySettings: [{kind: Nodes, operations: [List, Delete]}]}]}}
---
{apiVersion: capsule.clastix.io/v1beta1, kind: GlobalProxySettings, metadata: {name: settings}, spec: {rules: [{subjects: [{kind: User, name: ann}], clusterResources: [{apiGroups: ["*"], resources: ["*"], selector: {}}]}]}}
`)
	for _, tc := range []struct {
		reason   string
		object   client.Object
		honoured bool
		message  string
	}{
		{"everything has its effect", &v1beta1.ProxySetting{}, true, ""},
		{"the proxy deletes nothing", &v1beta1.ProxySetting{}, false, "spec.subjects[0].proxySettings[0].operations: the proxy changes nothing"},
		{"kinds have to be named", &v1beta1.GlobalProxySettings{}, false, "spec.rules[0].clusterResources[0]: name the kinds"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			key := client.ObjectKey{Namespace: "settings", Name: "all"}
			if !tc.honoured {
				key.Name = "some"
			}
			status := func() v1beta1.ProxySettingStatus { return tc.object.(*v1beta1.ProxySetting).Status }
			if global, ok := tc.object.(*v1beta1.GlobalProxySettings); ok {
				key, status = client.ObjectKey{Name: "settings"}, func() v1beta1.ProxySettingStatus { return global.Status }
			}
			testwait.For(t, "the status of "+key.String(), patience, func() (bool, string) {
				if err := c.Get(t.Context(), key, tc.object); err != nil {
					return false, err.Error()
				}
				condition := apimeta.FindStatusCondition(status().Conditions, "Honoured")
				return condition != nil && (condition.Status == "True") == tc.honoured && strings.Contains(condition.Message, tc.message) && status().ObservedGeneration == 1, fmt.Sprintf("%+v", status())
			})
		})
	}
}
