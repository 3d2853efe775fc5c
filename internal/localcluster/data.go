package localcluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// ErrDataInUse reports that a running cluster keeps its objects in a folder.
var ErrDataInUse = errors.New("a running cluster keeps its objects there")

// acquireData creates and locks the folder with the objects of a durable cluster.
// The lock is on the folder itself and leaves no file in it. The lock ends with the
// processes that hold it. Two clusters would destroy each other's objects.
func acquireData(dir string) (*os.File, error) {
	if err := privateFolder(dir); err != nil {
		return nil, fmt.Errorf("cannot use the data folder: %w; or choose another --data", err)
	}
	lock, err := os.Open(filepath.Clean(dir))
	if err != nil {
		return nil, fmt.Errorf("cannot use the data folder: %w", err)
	}
	err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return lock, nil
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = fmt.Errorf("%w; stop it with `tenure down`, or choose another --data", ErrDataInUse)
	}
	return nil, errors.Join(fmt.Errorf("cannot use the data folder %s: %w", dir, err), lock.Close())
}

// fullDisk are the texts with which the system and programs report that a disk is
// full, read-only or limited.
var fullDisk = []string{
	syscall.ENOSPC.Error(), syscall.EDQUOT.Error(), syscall.EFBIG.Error(), syscall.EROFS.Error(),
	"file size limit exceeded",
}

// explainFull puts advice before the error of a start that failed on a full disk, since the error may be the long log of a
// program. Other programs write most of these errors, so explainFull compares their text. It does not change an error that
// has the advice.
func (c *Cluster) explainFull(err error) error {
	if strings.Contains(err.Error(), "TENURE_HOME") {
		return err
	}
	for _, words := range fullDisk {
		if strings.Contains(strings.ToLower(err.Error()), words) {
			return fmt.Errorf("there is no room for the cluster's files in %s, or it is read-only; make room, or set TENURE_HOME (and --data, if you use it) to folders elsewhere:\n%w", c.opts.Root, err)
		}
	}
	return err
}
