package dra

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/numalet/numalet/deviceplugin/gpu"
)

// Flags is the part of the command line that is for drivers of claims.
type Flags struct {
	// On: the GPUs are offered to claims, in place of device plugins' resources.
	On                     bool
	options                Options
	mig, shares            string
	root, kubeconfig, node string
}

// AddFlags adds the flags of a driver of claims.
func AddFlags(set *pflag.FlagSet) *Flags {
	f := &Flags{}
	set.BoolVar(&f.On, "dra", false,
		"offer the GPUs to resource claims (DRA), in place of a device plugin's resources")
	set.StringVar(&f.options.Driver, "dra-driver", gpu.DriverName,
		"with --dra: the driver's name; only one driver of a name serves a node")
	set.StringVar(&f.mig, "dra-mig", "static",
		"with --dra: static offers the MIG devices that there are; dynamic has claims divide the "+
			"GPUs that are in MIG mode")
	set.StringVar(&f.shares, "dra-shares", "none",
		"with --dra: how many claims can have a device at the same time: none but one, memory "+
			"(by their capacity of memory), unlimited, or a number")
	set.StringVar(&f.root, "dra-root-dir", "/var/lib/kubelet",
		"with --dra: the kubelet's root directory, with plugins and plugins_registry")
	set.StringVar(&f.kubeconfig, "kubeconfig", "",
		"with --dra: file for the API server (the pod's service account) [KUBECONFIG]")
	set.StringVar(&f.node, "node-name", "",
		"with --dra: the node's name (the host's name) [NODE_NAME]")
	return f
}

// Check refuses flags of a driver of claims without --dra, and has the plugin use CDI with it.
func (f *Flags) Check(set *pflag.FlagSet) error {
	if f.On {
		return set.Set("device-list-strategy", string(gpu.CDICRI))
	}
	for _, name := range []string{"dra-driver", "dra-mig", "dra-shares", "dra-root-dir",
		"kubeconfig", "node-name"} {
		if set.Changed(name) {
			return fmt.Errorf("--%s has a meaning only with --dra", name)
		}
	}
	return nil
}

// Config returns the driver's configuration, without that of the plugin.
func (f *Flags) Config(env func(string) string) (out Config, err error) {
	out = Config{Options: f.options, Root: f.root}
	switch f.mig {
	case "static":
	case "dynamic":
		out.Options.Dynamic = true
	default:
		return out, fmt.Errorf("--dra-mig %q: want static or dynamic", f.mig)
	}
	if out.Options.Shares, err = ParseShares(f.shares); err != nil {
		return out, fmt.Errorf("--dra-shares %q: %w", f.shares, err)
	}
	out.Options.Node = cmp.Or(f.node, env("NODE_NAME"))
	if out.Options.Node == "" {
		host, err := os.Hostname()
		if err != nil {
			return out, errors.Join(errors.New("--node-name is not given"), err)
		}
		out.Options.Node = strings.ToLower(strings.TrimSpace(host)) // as the kubelet names it
	}
	rest, err := clientcmd.BuildConfigFromFlags("", cmp.Or(f.kubeconfig, env("KUBECONFIG")))
	if err != nil {
		return out, fmt.Errorf("--dra needs the API server: give --kubeconfig, or run as a pod with "+
			"a service account: %w", err)
	}
	rest.UserAgent = "numalet-gpu"
	out.Client, err = kubernetes.NewForConfig(rest)
	return out, err
}
