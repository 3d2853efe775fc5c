package server

import (
	"os"
	"testing"

	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
)

func TestMain(m *testing.M) { os.Exit(testcluster.Main(m)) }
