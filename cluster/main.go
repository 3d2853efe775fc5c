// Tenure-cluster is a Kubernetes control plane in one program: etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler and kubectl, each with upstream's own
// command, unmodified. The first argument names the component to run; a program that
// is called kubectl runs kubectl:
//
//	tenure-cluster kube-apiserver --etcd-servers=…
//	ln -s tenure-cluster kubectl && ./kubectl get pods
//
// The components cannot share one process, because each installs its signal handlers
// and its logging once per process. A control plane needs one process of this
// program per component.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	name, args := component(os.Args)
	// Upstream's commands read os.Args themselves, for usage texts and klog.
	os.Args = append([]string{name}, args...)
	switch name {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kube-apiserver":
		run(apiserver.NewAPIServerCommand())
	case "kube-controller-manager":
		run(controllermanager.NewControllerManagerCommand())
	case "kube-scheduler":
		run(scheduler.NewSchedulerCommand())
	case "kubectl":
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			util.CheckErr(err)
		}
	default:
		fmt.Fprintln(os.Stderr, "usage: tenure-cluster etcd|kube-apiserver|kube-controller-manager|kube-scheduler|kubectl [flags]")
		os.Exit(2)
	}
}

// component returns the component that argv asks for and its arguments. The
// component is kubectl if the program was called by that name, otherwise the first
// argument, or "" without arguments.
func component(argv []string) (string, []string) {
	if name := filepath.Base(argv[0]); name == "kubectl" {
		return name, argv[1:]
	}
	if len(argv) < 2 {
		return "", nil
	}
	return argv[1], argv[2:]
}

func run(cmd *cobra.Command) { os.Exit(cli.Run(cmd)) }
