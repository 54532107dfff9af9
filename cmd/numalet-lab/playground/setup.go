package playground

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cmd/numalet-lab/containerd"
	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/examples"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/discover"
)

// examples returns the manifests to start with, or nil for none.
func (o Options) examples() fs.FS {
	_, authored := o.author()
	switch {
	case o.Examples == "none", o.Examples == "" && authored: // the author knows what to ask for
		return nil
	case o.Examples != "":
		return os.DirFS(o.Examples)
	case o.Cluster != "" && o.Runtime == Containerd:
		return folder(examples.Cluster, "cluster/containerd")
	case o.DRA:
		return folder(examples.Cluster, "cluster/claims")
	case o.Cluster != "" && o.GPU != "":
		return folder(examples.Cluster, "cluster/gpu")
	case o.Cluster != "":
		return folder(examples.Cluster, "cluster")
	case o.Runtime == Containerd:
		return folder(examples.Containerd, "containerd")
	case o.GPU != "":
		return folder(examples.GPU, "gpu")
	default:
		return examples.Simulated
	}
}

// folder returns a folder that is compiled in.
func folder(of fs.FS, name string) fs.FS {
	sub, err := fs.Sub(of, name)
	if err != nil {
		panic(err)
	}
	return sub
}

// startRuntime starts the container runtime and returns its endpoint.
func (g *ground) startRuntime(ctx context.Context) (endpoint string, err error) {
	if g.opts.Runtime == Containerd {
		return g.startContainerd(ctx)
	}
	server, err := crisim.New(crisim.Config{
		Listen:  "unix://" + filepath.Join(g.dir, "cri.sock"),
		Control: filepath.Join(g.dir, "cri-control.sock"),
		CDIDirs: g.cdiDirs(),
	})
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	g.stops = append(g.stops, func() error {
		cancel()
		return <-done
	})
	return server.Endpoint(), nil
}

// cdiDirs returns where the simulated runtime looks for CDI specs; nil: where containerd does.
func (g *ground) cdiDirs() []string {
	if !g.opts.DRA {
		return nil
	}
	return []string{filepath.Join(g.dir, "cdi")}
}

// startContainerd starts our own containerd in our own cgroup, with images made from this
// executable.
func (g *ground) startContainerd(ctx context.Context) (endpoint string, err error) {
	tools, err := toolsDir(g.opts.Tools)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(g.dir, "c")
	if err := os.Mkdir(dir, 0o711); err != nil {
		return "", err
	}
	c := containerd.Config{Binaries: tools, Dir: dir, Pause: containerd.PauseImage}
	if err := c.Check(); err != nil {
		return "", err
	}
	ending := context.WithoutCancel(ctx)
	g.stops = append(g.stops, removeIfNew(networks))
	g.stops = append(g.stops, func() error { return cgroups.DeleteRoot(ending, g.cgroupRoot()) })
	if err := cgroups.CreateRoot(g.cgroupRoot()); err != nil {
		return "", err
	}
	daemon, err := containerd.Start(ctx, c)
	if tmp := os.Getenv("TMPDIR"); err != nil && len(tmp) > len("/tmp") {
		err = fmt.Errorf("%w (the playground is in TMPDIR, %s)", err, tmp)
	}
	if err != nil {
		return "", err
	}
	g.stops = append(g.stops, func() error { return daemon.Stop(ending) })
	executable, err := os.Executable()
	if err != nil {
		return "", err
	}
	archive := filepath.Join(g.dir, "images.tar")
	if err := containerd.WriteArchive(archive, executable); err != nil {
		return "", err
	}
	return daemon.Endpoint(), daemon.Import(ctx, archive)
}

// networks is where containerd's library remembers the networks of containers; its place is fixed.
const networks = "/var/lib/cni/results"

// removeIfNew returns what removes the directory and the one above it, if they are not there now and are
// empty then.
func removeIfNew(dir string) func() error {
	var made []string
	for _, at := range []string{dir, filepath.Dir(dir)} {
		if _, err := os.Stat(at); errors.Is(err, fs.ErrNotExist) {
			made = append(made, at)
		}
	}
	return func() error {
		for _, at := range made {
			_ = os.Remove(at) // others may use it by now
		}
		return nil
	}
}

func (g *ground) cgroupRoot() string { return "/" + filepath.Base(g.dir) }

// toolsDir returns the folder of containerd's binaries: the option, or NUMALET_TOOLS, or the folder
// that test/tools/build.sh filled last.
func toolsDir(option string) (string, error) {
	for _, dir := range []string{option, os.Getenv("NUMALET_TOOLS")} {
		if dir != "" {
			return dir, nil
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	found, err := filepath.Glob(filepath.Join(cache, "numalet", "tools", "*", "bin"))
	if err != nil || len(found) == 0 {
		return "", errors.New("containerd is not built yet: run test/tools/build.sh, or name the " +
			"folder of its binaries with --tools")
	}
	return slices.MaxFunc(found,
		func(a, b string) int { return changed(a).Compare(changed(b)) }), nil
}

// changed returns when the file was last written, or the zero time if it is gone.
func changed(file string) time.Time {
	info, err := os.Stat(file)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// config writes the agent's configuration to a file and reads it as it would read a user's.
func (p *Playground) config(endpoint string) (*config.Config, error) {
	settings, err := p.opts.settings()
	if err != nil {
		return nil, err
	}
	settings["staticPodPath"], settings["containerRuntimeEndpoint"] = p.manifests, endpoint
	settings["podLogsDir"] = p.logsDir()
	if err := reserveMemory(settings, p.opts.machine()); err != nil {
		return nil, err
	}
	if !p.opts.Once { // with Once, the agent takes no requests
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		settings["address"], settings["readOnlyPort"] = "127.0.0.1", port
		p.server = fmt.Sprintf("http://127.0.0.1:%d", port)
	}
	if p.opts.Runtime == Containerd {
		settings["cgroupsPerQOS"], settings["cgroupRoot"] = true, p.cgroupRoot()
		settings["enforceNodeAllocatable"] = []string{"pods"}
	}
	if p.cluster != nil {
		if err := p.cluster.settings(settings); err != nil {
			return nil, err
		}
	}
	raw, err := yaml.Marshal(settings)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(p.dir, "config.yaml")
	if err := os.WriteFile(file, raw, 0o644); err != nil {
		return nil, err
	}
	args := []string{"--config=" + file, "--root-dir=" + filepath.Join(p.dir, "root"),
		"--hostname-override=" + p.opts.node()}
	if p.cluster != nil {
		args = append(args, "--kubeconfig="+p.cluster.kubeconfig)
	}
	if machine := p.opts.machine(); machine != "" {
		args = append(args, "--topology-from="+machine)
	}
	return config.FromArgs(args)
}

// node returns the name of the agent's node.
func (o Options) node() string {
	if o.Cluster != "" {
		return nodeName
	}
	return "node"
}

// freePort returns a port of the loopback address on which no process listens now.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// machine returns the value for --topology-from, or "" for this machine.
func (o Options) machine() string {
	if o.Machine == "" && o.Runtime != Containerd {
		return "fixture:playground"
	}
	return o.Machine
}

// offers returns the device plugins: the GPU plugin if --gpu is given, with containerd a simulated
// one for GPUs, else simulated ones for GPUs and NICs. The latter offer the machine's PCI devices;
// if it has none, they offer four invented ones, spread over its nodes.
func (p *Playground) offers() ([]plugin, error) {
	if _, is := p.opts.author(); is {
		return nil, nil
	}
	if p.opts.GPU != "" {
		return []plugin{p.offerGPUs()}, nil
	}
	m := p.agent.Machine()
	if p.opts.Runtime == Containerd {
		return []plugin{p.offer("example.com/gpu",
			append(invented(m), "--device-path=/dev/null:/dev/sim-gpu")...)}, nil
	}
	var out []plugin
	for _, kind := range []struct{ resource, class string }{
		{"example.com/gpu", "03"}, {"example.com/nic", "02"},
	} {
		args := invented(m)
		if hasClass(m, kind.class) {
			file, err := p.machineFile()
			if err != nil {
				return nil, err
			}
			args = []string{"--topology-from=" + file, "--pci-class=" + kind.class}
		}
		out = append(out, p.offer(kind.resource, args...))
	}
	return out, nil
}

// machineFile writes the agent's machine to a file for the plugins, which may be unable to read the
// file of --topology-from.
func (p *Playground) machineFile() (string, error) {
	file := filepath.Join(p.dir, "machine.yaml")
	f, err := os.Create(file)
	if err != nil {
		return "", err
	}
	return file, errors.Join(discover.WriteYAML(f, p.agent.Machine()), f.Close())
}

func hasClass(m *topology.Machine, class string) bool {
	return slices.ContainsFunc(m.PCI(), func(d topology.PCIDevice) bool {
		return strings.HasPrefix(strings.TrimPrefix(d.Class, "0x"), class)
	})
}

func invented(m *topology.Machine) []string {
	return []string{"--devices=4", fmt.Sprintf("--nodes=%s", m.NodeSet())}
}
