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

// TestConflicts lets two objects conflict, of which one recovers.
func TestConflicts(t *testing.T) {
	t.Parallel()
	var conflicts backoff.Conflicts
	one, other := reconcile.Request{}, reconcile.Request{}
	one.Name, other.Name = "one", "other"
	first := conflicts.After(one)
	for n := range 20 {
		if delay := conflicts.After(one); delay <= first && n == 0 || delay > backoff.MaxConflict {
			t.Errorf("the delay after conflict %d is %s", n+2, delay)
		}
	}
	if delay := conflicts.After(one); delay != backoff.MaxConflict {
		t.Errorf("the delay after many conflicts is %s, want %s", delay, backoff.MaxConflict)
	}
	if delay := conflicts.After(other); delay != first {
		t.Errorf("the delay after the first conflict of another object is %s, want %s", delay, first)
	}
	conflicts.Forget(one)
	if delay := conflicts.After(one); delay != first {
		t.Errorf("the delay after a conflict that follows a success is %s, want %s", delay, first)
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
