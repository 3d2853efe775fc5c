package catalog

import (
	"context"
	"regexp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// schemaRefusal matches the message of the API server about a value that does not fit the schema of its
// kind.
var schemaRefusal = regexp.MustCompile(`should match '|must be of type`)

// schemas is the control that CVE-2022-39272 added.
const schemas = "schema of the kind"

func addUnreadableValues(register func(...Attack)) {
	register(Attack{
		ID: "A6", Via: API,
		Kinds:      []string{"Kustomization"},
		Title:      "writes a value that the controller cannot decode, which could stop the controller for all tenants",
		Controls:   []string{schemas},
		References: []string{"CVE-2022-39272"},
		Fix:        Fix{Advice: "install the CRDs of the same Flux release as its controllers: their schemas refuse such values"},
		Deep:       true,
		Source:     true,
		Run:        unreadable,
	})
}

// unreadable tries invalid durations in each kind with a duration, and then checks that the controller
// still answers.
func unreadable(ctx context.Context, e *Scenario) Finding {
	source := func(kind string, fields map[string]any) *unstructured.Unstructured {
		fields["suspend"] = true
		return object("source.toolkit.fluxcd.io/v1", kind, e.Namespace, name("a6"), map[string]any{"spec": fields})
	}
	spec := func(field, value string) func(map[string]any) {
		return func(spec map[string]any) { spec[field], spec["suspend"] = value, true }
	}
	var first Finding
	for _, value := range []string{"1 minute", "60", "-1m"} {
		for _, u := range []*unstructured.Unstructured{
			e.kustomization("a6", missingFolder, spec("interval", value)),
			e.kustomization("a6", missingFolder, spec("timeout", value)),
			e.kustomization("a6", missingFolder, spec("retryInterval", value)),
			e.chartless("a6", "nowhere", spec("interval", value)),
			source("GitRepository", map[string]any{"interval": value, "url": "https://git.example.com/a6"}),
			source("HelmRepository", map[string]any{"interval": value, "url": "https://charts.example.com"}),
			source("OCIRepository", map[string]any{"interval": value, "url": "oci://images.example.com/a6"}),
			source("Bucket", map[string]any{"interval": value, "bucketName": "a6", "endpoint": "buckets.example.com"}),
		} {
			err := aboutAttack(ctx, e.tryIntact(ctx, u), func(ctx context.Context) error { return e.tryIntact(ctx, readable(u, value)) })
			f := judgeSchema(err, "it could write the duration "+value+" into a "+u.GetKind())
			if f.Outcome != Stopped {
				return f
			}
			if first.Outcome == "" {
				first = f
			}
		}
	}
	return e.positiveControl(ctx, first, e.kustomization("a6", missingFolder, nil), messageMatches(pathNotFound))
}

// readable returns an object with a duration in place of a value in its spec.
func readable(u *unstructured.Unstructured, value string) *unstructured.Unstructured {
	own := u.DeepCopy()
	spec, _ := own.Object["spec"].(map[string]any)
	for field, found := range spec {
		if found == value {
			spec[field] = "1h"
		}
	}
	return own
}

// judgeSchema is [judge] for values that are malformed on purpose: the control is the schema that refuses
// them.
func judgeSchema(err error, evidence string) Finding {
	if err != nil && apierrors.IsInvalid(err) && schemaRefusal.MatchString(err.Error()) {
		return stopped(schemas, firstLine(err.Error()))
	}
	return judge(err, evidence)
}
