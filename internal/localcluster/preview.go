package localcluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster/network"
	"github.com/tenure-dev/tenure/internal/localcluster/network/archive"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// changedFolders are the addresses of the mapped folders that have changed, and whose sources
// do not know it yet. A request that fails is repeated, because the source would see the change
// only at its next interval.
type changedFolders = workqueue.TypedRateLimitingInterface[string]

// Pauses between two requests for the same address.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 5 * time.Second
)

func newChangedFolders() changedFolders {
	return workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstPause, maxPause))
}

// askSources requests a reconcile of the sources that fetch from the changed folders. It returns
// when the cluster is stopped.
func (c *Cluster) askSources(kube client.Client, changed changedFolders) {
	stop := context.AfterFunc(c.life, changed.ShutDown)
	defer stop()
	for {
		address, stopped := changed.Get()
		if stopped {
			return
		}
		if err := c.askSourcesOf(kube, address); err == nil {
			changed.Forget(address)
		} else if c.life.Err() == nil {
			c.log.Error("cannot ask the sources of a changed folder to look", "url", address, "error", err)
			changed.AddRateLimited(address)
		}
		changed.Done(address)
	}
}

func (c *Cluster) askSourcesOf(kube client.Client, address string) error {
	sources, err := flux.SourcesOf(c.life, kube, address)
	for _, source := range sources {
		// A source that was deleted since has nothing to look at.
		err = errors.Join(err, client.IgnoreNotFound(flux.RequestReconcile(c.life, kube, source)))
	}
	return err
}

// Folders of charts and artifacts are checked at this interval, or less often if a
// check takes long: checks use less than a tenth of the time. The folders are small:
// a chart has a few dozen files at most.
const (
	followInterval = 500 * time.Millisecond
	followShare    = 10
)

// followFolders announces a change in a folder of charts or artifacts at once, and
// reports a folder that it can no longer read. It returns when the cluster is
// stopped.
func (c *Cluster) followFolders(changed changedFolders) error {
	stamps := map[string]string{}
	var folders []network.Map
	for _, m := range c.opts.Maps {
		if m.Kind == network.KindHelm || m.Kind == network.KindOCI {
			folders = append(folders, m)
			// A folder that cannot be read now has an empty stamp, which changes
			// once the folder can be read.
			stamps[m.Dir], _ = archive.Stamp(m.Dir)
		}
	}
	if len(folders) == 0 {
		return nil
	}
	timer := time.NewTimer(followInterval)
	defer timer.Stop()
	for {
		select {
		case <-c.life.Done():
			return nil
		case <-timer.C:
		}
		began := time.Now()
		dirs := map[string]bool{}
		for dir, before := range stamps {
			// The stamp of an unreadable folder is empty, so the error is reported
			// only once.
			stamp, err := archive.Stamp(dir)
			if stamp == before {
				continue
			}
			if stamps[dir] = stamp; err != nil {
				c.opts.Report(fmt.Errorf("a mapped folder is not served any more: %w", err))
				continue
			}
			dirs[dir] = true
		}
		timer.Reset(max(followInterval, followShare*time.Since(began)))
		for _, m := range folders {
			if dirs[m.Dir] {
				changed.Add(m.Source())
			}
		}
	}
}
