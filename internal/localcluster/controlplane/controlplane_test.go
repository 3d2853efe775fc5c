package controlplane

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/internal/supervise"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

func TestTmp(t *testing.T) {
	dir, _ := os.MkdirTemp("/tmp", "cp")
	os.MkdirAll(filepath.Join(dir, "log"), 0o700)
	g, err := supervise.NewGroup(supervise.Options{Reaper: []string{"/bin/cat"}})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close(context.Background())
	t0 := time.Now()
	cp, err := Start(t.Context(), Config{Program: "/tmp/tc", Dir: dir, Data: dir, Group: g, OnCrash: func(e *supervise.CrashError) { t.Log(e) },
		Step: func(n string) func(error) {
			s := time.Now()
			return func(err error) { t.Log(n, time.Since(s), err) }
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Log("ready", time.Since(t0), dir)
	c := kubernetes.NewForConfigOrDie(cp.RESTConfig())
	v, _ := c.Discovery().ServerVersion()
	t.Log(v)
	l, err := c.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	t.Log(len(l.Items), err)
	for range 100 {
		if _, err := c.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{}); err == nil {
			t.Log("kcm up", time.Since(t0))
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	t1 := time.Now()
	cp.Stop(context.Background())
	t.Log("stop", time.Since(t1))
}
