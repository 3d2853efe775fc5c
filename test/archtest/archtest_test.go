package archtest

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// TestRepository holds this repository to the rules.
func TestRepository(t *testing.T) {
	t.Parallel()
	const root = "../.."
	if _, err := os.Stat(root + "/go.mod"); err != nil {
		t.Fatalf("cannot find the root of the repository: %v", err)
	}
	result, err := Check(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range result.Violations {
		t.Error(v)
	}
	for _, a := range result.Advice {
		t.Log(a)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	source := func(imports ...string) string {
		text := "// Package p is documented.\npackage p\n"
		for _, i := range imports {
			text += "import _ \"" + i + "\"\n"
		}
		return text
	}
	lines := func(n int, line string) string { return strings.Repeat(line+"\n", n) }
	cases := map[string]struct {
		reason string
		name   string
		text   string
		want   []string
		advice []string
	}{
		"Clean": {
			reason: "An ordinary file breaks no rule.",
			name:   "internal/p/p.go",
			text:   source("fmt", "k8s.io/client-go/rest", "github.com/tenure-dev/tenure/internal/process"),
		},
		"ClusterImportsRoot": {
			reason: "The control plane must not depend on us.",
			name:   "cluster/p/p.go",
			text:   source("github.com/tenure-dev/tenure/internal/process"),
			want:   []string{"cluster/p/p.go:3: imports github.com/tenure-dev/tenure/internal/process: cluster/ is a separate module and imports no package of the root module"},
		},
		"ClusterImportsItself": {
			reason: "A module's own packages are its own business.",
			name:   "cluster/main.go",
			text:   source("github.com/tenure-dev/tenure/cluster/p", "k8s.io/kubernetes/cmd/kube-apiserver/app"),
		},
		"RootImportsCluster": {
			reason: "Importing the control plane would pull Kubernetes into the root's graph.",
			name:   "internal/p/p.go",
			text:   source("github.com/tenure-dev/tenure/cluster"),
			want:   []string{"internal/p/p.go:3: imports github.com/tenure-dev/tenure/cluster: the control plane is run as a program, never imported"},
		},
		"RootImportsAPackageNamedLikeCluster": {
			reason: "Only the folder itself is meant, not every name that begins like it.",
			name:   "internal/p/p.go",
			text:   source("github.com/tenure-dev/tenure/clusters"),
		},
		"RootImportsKubernetes": {
			reason: "The same, without the detour.",
			name:   "internal/p/p_test.go",
			text:   source("k8s.io/kubernetes/pkg/apis/core"),
			want:   []string{"internal/p/p_test.go:3: imports k8s.io/kubernetes/pkg/apis/core: only cluster/ builds Kubernetes"},
		},
		"FluxOutside": {
			reason: "A test outside internal/flux binds itself to Flux's types as well.",
			name:   "internal/fluxish/p_test.go",
			text:   source("github.com/fluxcd/kustomize-controller/api/v1"),
			want:   []string{"internal/fluxish/p_test.go:3: imports github.com/fluxcd/kustomize-controller/api/v1: only internal/flux knows Flux's APIs"},
		},
		"FluxInside": {
			reason: "Packages below internal/flux are part of it.",
			name:   "internal/flux/rows/p.go",
			text:   source("github.com/fluxcd/kustomize-controller/api/v1"),
		},
		"ProviderOutside": {
			reason: "The token of a Git provider is in one package.",
			name:   "internal/cli/p.go",
			text:   source("github.com/fluxcd/go-git-providers/github"),
			want:   []string{"internal/cli/p.go:3: imports github.com/fluxcd/go-git-providers/github: only bootstrap/provider calls the APIs of Git providers"},
		},
		"ProviderInside": {
			reason: "The package of the flux CLI has no types of Flux's APIs.",
			name:   "internal/fleet/bootstrap/provider/p.go",
			text:   source("github.com/fluxcd/go-git-providers/github"),
		},
		"APIImportsMore": {
			reason: "Whoever imports our types must not get controller-runtime with them.",
			name:   "api/v1alpha1/p.go",
			text:   source("time", "k8s.io/apimachinery/pkg/runtime", "sigs.k8s.io/controller-runtime"),
			want:   []string{"api/v1alpha1/p.go:5: imports sigs.k8s.io/controller-runtime: api/ imports Kubernetes' API types alone"},
		},
		"Undocumented": {
			reason: "A package says what it is for.",
			name:   "internal/p/p.go",
			text:   "package p\n",
			want:   []string{"internal/p:1: the package has no doc comment"},
		},
		"LongFile": {
			reason: "A file of the limit's length is too long already.",
			name:   "internal/p/p.go",
			text:   "// Package p is documented.\npackage p\n" + lines(398, ""),
			advice: []string{"internal/p/p.go:1: the file has 400 lines: does it have one subject?"},
		},
		"LongestFile": {
			reason: "One line less is not.",
			name:   "internal/p/p.go",
			text:   "// Package p is documented.\npackage p\n" + lines(397, ""),
		},
		"LongFunction": {
			reason: "A function of the limit's length is too long already.",
			name:   "internal/p/p.go",
			text:   "// Package p is documented.\npackage p\n\nfunc f() {\n" + lines(98, "") + "}\n",
			advice: []string{"internal/p/p.go:4: the function f has 100 lines: is it a list of steps?"},
		},
		"SilentError": {
			reason: "Callers of an exported function need to know when it returns an error.",
			name:   "internal/p/p.go",
			text:   "// Package p is documented.\npackage p\n\n// F does f.\nfunc F() (int, error) { return 0, nil }\n\n// G does g. It returns an error for h.\nfunc G() error { return nil }\n\nfunc h() error { return nil }\n\n// I does i.\nfunc (t T) I() error { return nil }\n\n// J does j.\nfunc (t *t) J() error { return nil }\n",
			advice: []string{
				"internal/p/p.go:13: the doc comment of I does not say which error it returns",
				"internal/p/p.go:5: the doc comment of F does not say which error it returns",
			},
		},
		"LongTest": {
			reason: "Tables in tests may be long.",
			name:   "internal/p/p_test.go",
			text:   "package p\n\nfunc f() {\n" + lines(500, "") + "}\n",
		},
		"Skips": {
			reason: "A test that is skipped looks like one that has passed.",
			name:   "internal/p/p_test.go",
			text:   "package p\n\nimport \"testing\"\n\nfunc f(t testing.TB) {\n\tt.Skip()\n\tr.t.Skipf(\"x\")\n\tdefer t.SkipNow()\n\tif testing.Short() {\n\t}\n}\n",
			want: []string{
				"internal/p/p_test.go:6: Skip skips a test, which then passes: put the files that it needs into testdata, fail and say what to install, or return in a fuzz target",
				"internal/p/p_test.go:7: Skipf skips a test, which then passes: put the files that it needs into testdata, fail and say what to install, or return in a fuzz target",
				"internal/p/p_test.go:8: SkipNow skips a test, which then passes: put the files that it needs into testdata, fail and say what to install, or return in a fuzz target",
				"internal/p/p_test.go:9: testing.Short skips tests: make them quick, or move slow tests to test/e2e",
			},
		},
		"SkipsInHelper": {
			reason: "Packages with helpers for tests skip no test either.",
			name:   "internal/p/p.go",
			text:   "// Package p is documented.\npackage p\n\nimport \"testing\"\n\nfunc f(t testing.TB) { t.Skip() }\n",
			want:   []string{"internal/p/p.go:6: Skip skips a test, which then passes: put the files that it needs into testdata, fail and say what to install, or return in a fuzz target"},
		},
		"SkipsOther": {
			reason: "Where there are no tests, the names are free.",
			name:   "internal/p/p.go",
			text:   "// Package p is documented.\npackage p\n\nfunc f(s scanner) { s.Skip(); s.Short() }\n",
		},
		"LongGenerated": {
			reason: "Nobody reads generated files from top to bottom.",
			name:   "internal/p/p.go",
			text:   "// Code generated by a program. DO NOT EDIT.\n\n// Package p is documented.\npackage p\n" + lines(500, ""),
		},
		"Replace": {
			reason: "Both forms of a replace are one.",
			name:   "go.mod",
			text:   "module m\n\nreplace (\n\ta => b v1.0.0\n)\nreplace c => ../c\n",
			want: []string{
				"go.mod:3: a replace makes go install refuse this module",
				"go.mod:6: a replace makes go install refuse this module",
			},
		},
		"RequireKubernetes": {
			reason: "An indirect requirement grows the graph just as much.",
			name:   "go.mod",
			text:   "module m\n\nrequire k8s.io/kubernetes v1.36.3 // indirect\n",
			want:   []string{"go.mod:3: k8s.io/kubernetes belongs to the module cluster alone"},
		},
		"OtherModule": {
			reason: "Modules that only build programs may replace what they need to.",
			name:   "cluster/flux/go.mod",
			text:   "module m\n\nreplace a => b v1.0.0\n",
		},
		"Skipped": {
			reason: "What is not ours, or is a test's input, is not looked at.",
			name:   "internal/p/testdata/p.go",
			text:   "not Go",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Check(fstest.MapFS{tc.name: &fstest.MapFile{Data: []byte(tc.text)}})
			if err != nil {
				t.Fatalf("%s\nCheck(): %v", tc.reason, err)
			}
			if diff := cmp.Diff(Result{Violations: tc.want, Advice: tc.advice}, got); diff != "" {
				t.Errorf("%s\nCheck(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestCheckCannotParse(t *testing.T) {
	t.Parallel()
	_, err := Check(fstest.MapFS{"p.go": &fstest.MapFile{Data: []byte("not Go")}})
	if err == nil {
		t.Fatal("Check() of a file that is not Go: got no error, so a broken file would pass")
	}
}
