package proxy

import (
	"os"
	"testing"

	"github.com/tenure-dev/tenure/internal/testcluster"
)

func TestMain(m *testing.M) { os.Exit(testcluster.Main(m)) }
