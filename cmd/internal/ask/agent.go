// Package ask reaches a running agent for the commands that ask one. They all name it in the same ways: as a node of
// a cluster, by an address, or by its root directory on this machine.
package ask

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/numalet/numalet/agent/placement/devices"
)

// Env is the environment variable that names an agent's address if no flag names an agent.
const Env = "NUMALET_SERVER"

// usualRoot is the root directory of an agent whose command line names none.
const usualRoot = "/var/lib/kubelet"

// Agent is the agent that the flags of a command name. Add registers the flags.
type Agent struct {
	server     address
	node       string
	kubeconfig *pflag.Flag
	root       *pflag.Flag
}

// Add registers the flags. If the set has --kubeconfig or --root-dir as flags of an agent, they are used: they mean
// the same.
func (a *Agent) Add(flags *pflag.FlagSet) {
	flags.Var(&a.server, "server", "ask the agent at this address: HOST:PORT of its read-only port, or the path of "+
		"its socket; empty: $"+Env)
	flags.StringVar(&a.node, "node", "", "ask the agent of this node, through the API server of --kubeconfig")
	a.kubeconfig = shared(flags, "kubeconfig", "",
		"with --node: how to reach the API server; empty: $KUBECONFIG, or ~/.kube/config")
	a.root = shared(flags, "root-dir", usualRoot,
		"ask the agent on this machine that has this root directory, through its socket")
}

func shared(flags *pflag.FlagSet, name, value, usage string) *pflag.Flag {
	if flags.Lookup(name) == nil {
		flags.String(name, value, usage)
	}
	flag := flags.Lookup(name)
	flag.Usage, flag.Hidden = usage, false
	return flag
}

// Flags lists the flags that name an agent, or say how it is reached.
func Flags() []string { return []string{"server", "node", "kubeconfig", "root-dir"} }

// Named reports whether a flag names an agent.
func (a *Agent) Named() bool { return len(a.named()) > 0 }

// NamedAnyhow reports whether a flag or the environment names an agent.
func (a *Agent) NamedAnyhow() bool { return a.Named() || os.Getenv(Env) != "" }

// named lists the flags that are used to name an agent.
func (a *Agent) named() (out []string) {
	if a.node != "" {
		out = append(out, "--node")
	}
	if a.server.known() {
		out = append(out, "--server")
	}
	if a.root != nil && a.root.Changed {
		out = append(out, "--root-dir")
	}
	return out
}

// Root returns the root directory of the agent, if that is on this machine as far as the flags and the environment
// say.
func (a *Agent) Root() (string, bool) {
	t, err := a.target()
	if err != nil || t.socket == "" {
		return "", false
	}
	return filepath.Dir(t.socket), true
}

// Kubeconfig reports whether the user has named an API server.
func (a *Agent) Kubeconfig() bool {
	return a.node != "" || a.kubeconfig != nil && a.kubeconfig.Changed || os.Getenv("KUBECONFIG") != ""
}

// target is where questions go: to the API server if node is not empty, else to the address.
type target struct {
	address
	node   string
	client *http.Client
	// spare is asked if the socket cannot be opened; nil: there is none.
	spare *target
}

// target returns where the questions go: to what a flag names, or $NUMALET_SERVER, or the agent with the usual root
// directory. Its usual read-only port answers those who may not open its socket.
func (a *Agent) target() (target, error) {
	named := a.named()
	switch text := os.Getenv(Env); {
	case len(named) > 1:
		return target{}, fmt.Errorf("%s: each names an agent; leave one out", strings.Join(named, " and "))
	case a.node != "":
		return a.throughAPIServer()
	case a.kubeconfig != nil && a.kubeconfig.Changed:
		return target{}, fmt.Errorf("--kubeconfig says how a node is reached: name the node with --node")
	case a.server.known():
		return a.server.target(), nil
	case len(named) > 0:
		return inRoot(a.root.Value.String())
	case text != "":
		var at address
		if err := at.Set(text); err != nil {
			return target{}, fmt.Errorf("$%s=%s: %w", Env, text, err)
		}
		return at.target(), nil
	}
	t, err := inRoot(usualRoot)
	port := address{base: &url.URL{Scheme: "http", Host: "127.0.0.1:" + readOnlyPort}}.target()
	t.spare = &port
	return t, err
}

// inRoot is the agent with this root directory.
func inRoot(root string) (target, error) {
	path, err := filepath.Abs(filepath.Join(root, devices.Socket))
	return address{socket: path}.target(), err
}
