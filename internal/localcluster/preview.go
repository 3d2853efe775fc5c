package localcluster

import (
	"errors"
	"fmt"
	"time"

	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster/network"
	"github.com/tenure-dev/tenure/internal/localcluster/network/archive"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// askSources asks the sources that fetch from an address to look now.
func (c *Cluster) askSources(kube client.Client, address string) {
	sources, err := flux.SourcesOf(c.life, kube, address)
	for _, source := range sources {
		err = errors.Join(err, flux.RequestReconcile(c.life, kube, source))
	}
	if err != nil && c.life.Err() == nil {
		c.log.Error("cannot ask the sources of a changed folder to look", "url", address, "error", err)
	}
}

// Folders of charts and artifacts are looked through at this interval, and never
// for more than a tenth of the time. They are small: a chart is at most a few
// dozen files.
const (
	followInterval = 500 * time.Millisecond
	followShare    = 10
)

// followFolders makes a change in a folder that is no Git repository known at
// once, and reports a folder that cannot be read any more. It returns when the
// cluster is stopped.
func (c *Cluster) followFolders(kube client.Client) error {
	stamps := map[string]string{}
	var folders []network.Map
	for _, m := range c.opts.Maps {
		if m.Kind == network.KindHelm || m.Kind == network.KindOCI {
			folders = append(folders, m)
			// One that cannot be read now is noticed when it can.
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
		changed := map[string]bool{}
		for dir, before := range stamps {
			// The stamp of what cannot be read is empty: reported once.
			stamp, err := archive.Stamp(dir)
			if stamp == before {
				continue
			}
			if stamps[dir] = stamp; err != nil {
				c.opts.Report(fmt.Errorf("a mapped folder is not served any more: %w", err))
				continue
			}
			changed[dir] = true
		}
		timer.Reset(max(followInterval, followShare*time.Since(began)))
		for _, m := range folders {
			if changed[m.Dir] {
				c.askSources(kube, m.Source())
			}
		}
	}
}
