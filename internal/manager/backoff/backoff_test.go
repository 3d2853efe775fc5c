package backoff_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/manager/backoff"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestMax lets an object fail often.
func TestMax(t *testing.T) {
	t.Parallel()
	limiter := backoff.RateLimiter()
	for n := range 100 {
		if delay := limiter.When(reconcile.Request{}); delay > backoff.Max {
			t.Fatalf("the delay after failure %d is %s, want at most %s", n+1, delay, backoff.Max)
		}
	}
}

// makes matches the functions that make a controller.
var makes = regexp.MustCompile(`ctrl\.NewControllerManagedBy\(|controller\.New\(`)

// TestControllers checks that each controller of the manager has the rate limiter.
func TestControllers(t *testing.T) {
	t.Parallel()
	controllers := 0
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		made, limited := len(makes.FindAll(content, -1)), strings.Count(string(content), "backoff.RateLimiter()")
		if controllers += made; made != limited {
			t.Errorf("%s makes %d controllers, of which %d have the option RateLimiter: backoff.RateLimiter()", path, made, limited)
		}
		return nil
	})
	if err != nil || controllers == 0 {
		t.Errorf("found %d controllers: %v", controllers, err)
	}
}
