package dradriver

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// Flags is the part of a plugin's command line that is for drivers of claims.
type Flags struct {
	// On: the devices are offered to claims, in place of device plugins' resources.
	On bool
	// Driver is the driver's name.
	Driver                 string
	root, kubeconfig, node string
}

// AddFlags adds the flags of a driver of claims for what, such as "GPUs". usual describes the
// driver's name where it is not the default, which may be "".
func AddFlags(set *pflag.FlagSet, what, name, usual string) *Flags {
	f := &Flags{}
	set.BoolVar(&f.On, "dra", false, "offer the "+what+" to resource claims (DRA), in place of a "+
		"device plugin's resources")
	set.StringVar(&f.Driver, "dra-driver", name,
		"with --dra: the driver's name"+usual+"; only one driver of a name serves a node")
	set.StringVar(&f.root, "dra-root-dir", "/var/lib/kubelet",
		"with --dra: the kubelet's root directory, with plugins and plugins_registry")
	set.StringVar(&f.kubeconfig, "kubeconfig", "",
		"with --dra: file for the API server (the pod's service account) [KUBECONFIG]")
	set.StringVar(&f.node, "node-name", "",
		"with --dra: the node's name (the host's name) [NODE_NAME]")
	return f
}

// Check refuses flags of a driver of claims without --dra; more are the plugin's own.
func (f *Flags) Check(set *pflag.FlagSet, more ...string) error {
	if f.On {
		return nil
	}
	for _, name := range append(more, "dra-driver", "dra-root-dir", "kubeconfig", "node-name") {
		if set.Changed(name) {
			return fmt.Errorf("--%s has a meaning only with --dra", name)
		}
	}
	return nil
}

// Config returns the part of the configuration that the flags have. program is the name of
// the program.
func (f *Flags) Config(program string, env func(string) string) (Config, error) {
	out := Config{Driver: f.Driver, Root: f.root, Program: program,
		Node: cmp.Or(f.node, env("NODE_NAME"))}
	if out.Node == "" {
		host, err := os.Hostname()
		if err != nil {
			return out, errors.Join(errors.New("--node-name is not given"), err)
		}
		out.Node = strings.ToLower(strings.TrimSpace(host)) // as the kubelet names it
	}
	rest, err := clientcmd.BuildConfigFromFlags("", cmp.Or(f.kubeconfig, env("KUBECONFIG")))
	if err != nil {
		return out, fmt.Errorf("--dra needs the API server: give --kubeconfig, or run as a pod with "+
			"a service account: %w", err)
	}
	rest.UserAgent = program
	// Each claim is read when it is prepared, and a node's pods may start at once: the kubelet's limits.
	rest.QPS, rest.Burst = 50, 100
	out.Client, err = kubernetes.NewForConfig(rest)
	return out, err
}
