package localcluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// ErrDataInUse says that a running cluster keeps its objects in a folder.
var ErrDataInUse = errors.New("a running cluster keeps its objects there")

// acquireData makes and locks the folder that keeps a durable cluster's objects.
// The lock is on the folder itself and leaves no file in it. It ends with the
// processes that hold it: two clusters would ruin each other's objects.
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

// fullDisk are the ways in which the system, and programs that were told so by
// the system, say that there is no room.
var fullDisk = []string{
	syscall.ENOSPC.Error(), syscall.EDQUOT.Error(), syscall.EFBIG.Error(), syscall.EROFS.Error(),
	"file size limit exceeded",
}

// explainFull adds the way out to the error of a start for which there was no
// room. Most of it is written by programs of others, so it goes by the words.
func (c *Cluster) explainFull(err error) error {
	for _, words := range fullDisk {
		if strings.Contains(strings.ToLower(err.Error()), words) {
			return fmt.Errorf("%w\nthere is no room for the cluster's files in %s, or it is read-only: make room, or set TENURE_HOME (and --data, if you use it) to folders elsewhere", err, c.opts.Root)
		}
	}
	return err
}
