// Policies writes manifests into the folder that its first argument names: the rules of
// internal/admission, those of warn mode, the policies that put objects into shards, the policy with
// the defaults of tenants, and the configuration of the
// webhook. It writes the rules, and the requests that they cover, as pages of documentation
// into the folder that its second argument names.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/tenure-dev/tenure/internal/admission"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: policies FOLDER DOCS")
		os.Exit(2)
	}
	manifests, err := admission.Manifests()
	if err == nil {
		err = os.WriteFile(filepath.Join(os.Args[1], "admission", "policies.yaml"), manifests, 0o644) //nolint:gosec // manifests that everybody may read
	}
	var warn []byte
	if err == nil {
		warn, err = admission.WarnManifests()
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(os.Args[1], "admission", "warn.yaml"), warn, 0o644) //nolint:gosec // manifests that everybody may read
	}
	var shards []byte
	if err == nil {
		shards, err = admission.ShardManifests()
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(os.Args[1], "admission", "shards.yaml"), shards, 0o644) //nolint:gosec // manifests that everybody may read
	}
	var defaults []byte
	if err == nil {
		defaults, err = admission.DefaultsManifests()
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(os.Args[1], "admission", "defaults.yaml"), defaults, 0o644) //nolint:gosec // manifests that everybody may read
	}
	var rules []byte
	if err == nil {
		rules, err = admission.CapsuleManifests()
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(os.Args[1], "capsule", "rules.yaml"), rules, 0o644) //nolint:gosec // manifests that everybody may read
	}
	var webhook []byte
	if err == nil {
		webhook, err = admission.WebhookManifest()
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(os.Args[1], "webhook", "configuration.yaml"), webhook, 0o644) //nolint:gosec // a manifest that everybody may read
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(os.Args[2], "policies.md"), []byte(admission.Document()), 0o644) //nolint:gosec // a page that everybody may read
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(os.Args[2], "coverage.md"), []byte(admission.CoverageDocument()), 0o644) //nolint:gosec // a page that everybody may read
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
