package flux

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTable(t *testing.T) {
	t.Parallel()
	row := Row{Namespace: "ns", Name: "app", Source: "GitRepository/ns/src", Revision: revisionA, Suspended: true, Ready: "True", Message: "Applied " + revisionA}
	short := "main@sha1:01234567"
	tests := map[string]struct {
		reason string
		kind   Kind
		opts   TableOptions
		header string
		cells  string
	}{
		"kustomization":  {"the columns of flux get", Kustomization, TableOptions{}, "NAME REVISION SUSPENDED READY MESSAGE", "app|" + short + "|True|True|Applied " + short},
		"namespace":      {"-A adds the namespace in front", GitRepository, TableOptions{Namespace: true}, "NAMESPACE NAME REVISION SUSPENDED READY MESSAGE", "ns|app|" + short + "|True|True|Applied " + short},
		"kind in name":   {"flux get all tells its tables apart by names", Kustomization, TableOptions{KindInName: true}, "NAME REVISION SUSPENDED READY MESSAGE", "kustomization/app|" + short + "|True|True|Applied " + short},
		"show source":    {"--show-source adds a column after the name", Kustomization, TableOptions{Source: true}, "NAME SOURCE REVISION SUSPENDED READY MESSAGE", "app|GitRepository/ns/src|" + short + "|True|True|Applied " + short},
		"chart":          {"a SemVer is not shortened, a message is", HelmChart, TableOptions{}, "NAME REVISION SUSPENDED READY MESSAGE", "app|" + revisionA + "|True|True|Applied " + short},
		"external":       {"an ExternalArtifact cannot be suspended", ExternalArtifact, TableOptions{}, "NAME REVISION SOURCE READY MESSAGE", "app|" + short + "|GitRepository/ns/src|True|Applied " + short},
		"provider":       {"providers have no revision and flux does not show their suspension", Provider, TableOptions{}, "NAME READY MESSAGE", "app|True|Applied " + short},
		"alert":          {"alerts have no revision", Alert, TableOptions{}, "NAME SUSPENDED READY MESSAGE", "app|True|True|Applied " + short},
		"image policy":   {"image and tag", ImagePolicy, TableOptions{}, "NAME IMAGE TAG READY MESSAGE", "app|GitRepository/ns/src|" + revisionA + "|True|Applied " + short},
		"image scan":     {"time of the scan", ImageRepository, TableOptions{}, "NAME LAST SCAN SUSPENDED READY MESSAGE", "app|" + short + "|True|True|Applied " + short},
		"image updating": {"time of the run", ImageUpdateAutomation, TableOptions{}, "NAME LAST RUN SUSPENDED READY MESSAGE", "app|" + short + "|True|True|Applied " + short},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			row := row
			row.Kind = tt.kind
			header, cells := Table(tt.kind, []Row{row}, tt.opts)
			if diff := cmp.Diff(tt.header, strings.Join(header, " ")); diff != "" {
				t.Errorf("%s\nheader (-want +got):\n%s", tt.reason, diff)
			}
			if diff := cmp.Diff(tt.cells, strings.Join(cells[0], "|")); diff != "" {
				t.Errorf("%s\ncells (-want +got):\n%s", tt.reason, diff)
			}
		})
	}
}

func FuzzShortRevision(f *testing.F) {
	for _, seed := range []string{
		"", revisionA, "v1.2.3", "sha256:" + strings.Repeat("a", 64), strings.Repeat("0", 129), "x" + strings.Repeat("f", 40),
		revisionA + " and " + revisionA, "\xff" + strings.Repeat("a", 40),
	} {
		f.Add(seed)
	}
	long := regexp.MustCompile(`\b[a-f0-9]{40,128}\b`)
	f.Fuzz(func(t *testing.T, s string) {
		got := ShortRevision(s)
		if long.MatchString(got) {
			t.Errorf("ShortRevision(%q) = %q still has a long hash", s, got)
		}
		if !long.MatchString(s) && got != s {
			t.Errorf("ShortRevision(%q) = %q changed text without a hash", s, got)
		}
		if ShortRevision(got) != got {
			t.Errorf("ShortRevision(%q) is not stable: %q, then %q", s, got, ShortRevision(got))
		}
	})
}
