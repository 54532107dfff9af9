package playground

import (
	"cmp"
	"context"
	_ "embed"
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

	"github.com/numalet/numalet/agent/config"
	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cri/containerd"
	"github.com/numalet/numalet/cri/sim"
	"github.com/numalet/numalet/examples"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/discover"
)

// examples are the manifests to begin with; nil: none.
func (o Options) examples() fs.FS {
	switch {
	case o.Examples == "none":
		return nil
	case o.Examples != "":
		return os.DirFS(o.Examples)
	case o.Cluster != "" && o.Runtime == Containerd:
		return folder(examples.Cluster, "cluster/containerd")
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

// folder is one that is compiled in.
func folder(of fs.FS, name string) fs.FS {
	sub, err := fs.Sub(of, name)
	if err != nil {
		panic(err)
	}
	return sub
}

// startRuntime starts the container runtime and tells how to reach it.
func (p *Playground) startRuntime(ctx context.Context) (endpoint string, err error) {
	if p.opts.Runtime == Containerd {
		return p.startContainerd(ctx)
	}
	server, err := sim.New(sim.Config{
		Listen:  "unix://" + filepath.Join(p.dir, "cri.sock"),
		Control: filepath.Join(p.dir, "cri-control.sock"),
	})
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	p.stops = append(p.stops, func() error {
		cancel()
		return <-done
	})
	return server.Endpoint(), nil
}

// startContainerd starts a containerd of our own with images made from this executable, in a
// cgroup of our own.
func (p *Playground) startContainerd(ctx context.Context) (endpoint string, err error) {
	tools, err := toolsDir(p.opts.Tools)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(p.dir, "c")
	if err := os.Mkdir(dir, 0o711); err != nil {
		return "", err
	}
	c := containerd.Config{Binaries: tools, Dir: dir, Pause: containerd.PauseImage}
	if err := c.Check(); err != nil {
		return "", err
	}
	ending := context.WithoutCancel(ctx)
	p.stops = append(p.stops, func() error { return cgroups.DeleteRoot(ending, p.cgroupRoot()) })
	if err := cgroups.CreateRoot(p.cgroupRoot()); err != nil {
		return "", err
	}
	daemon, err := containerd.Start(ctx, c)
	if tmp := os.Getenv("TMPDIR"); err != nil && len(tmp) > len("/tmp") {
		err = fmt.Errorf("%w (the playground is in TMPDIR, %s)", err, tmp)
	}
	if err != nil {
		return "", err
	}
	p.stops = append(p.stops, func() error { return daemon.Stop(ending) })
	executable, err := os.Executable()
	if err != nil {
		return "", err
	}
	archive := filepath.Join(p.dir, "images.tar")
	if err := containerd.WriteArchive(archive, executable); err != nil {
		return "", err
	}
	return daemon.Endpoint(), daemon.Import(ctx, archive)
}

func (p *Playground) cgroupRoot() string { return "/" + filepath.Base(p.dir) }

// toolsDir finds containerd's binaries: where the option or NUMALET_TOOLS says, or in the folder
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

// changed is when the file was last written to; the zero time when it is gone.
func changed(file string) time.Time {
	info, err := os.Stat(file)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

//go:embed config.yaml
var baseConfig []byte

// config is the agent's configuration, written to a file and read as any user's is.
func (p *Playground) config(endpoint string) (*config.Config, error) {
	var settings map[string]any
	if err := yaml.Unmarshal(baseConfig, &settings); err != nil {
		return nil, err
	}
	settings["staticPodPath"], settings["containerRuntimeEndpoint"] = p.manifests, endpoint
	settings["podLogsDir"] = filepath.Join(p.dir, "logs")
	kept, err := reservedMemory(p.opts.machine())
	if err != nil {
		return nil, err
	}
	settings["reservedMemory"] = kept
	if !p.opts.Once { // nobody is there to ask
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

// node is the node's name.
func (o Options) node() string {
	if o.Cluster != "" {
		return nodeName
	}
	return "node"
}

// reservedMemory takes what the configuration keeps back, 1Gi and 100Mi, from the largest node.
func reservedMemory(machine string) (any, error) {
	m, err := discover.Open(machine)
	if err != nil {
		return nil, err
	}
	largest := slices.MaxFunc(m.Nodes(), func(a, b topology.Node) int {
		return cmp.Compare(a.MemoryBytes, b.MemoryBytes)
	})
	return []any{map[string]any{
		"numaNode": largest.ID, "limits": map[string]string{"memory": "1124Mi"},
	}}, nil
}

// freePort is a port of the loopback address that nobody listens on now.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// machine is what --topology-from gets; "": this machine.
func (o Options) machine() string {
	if o.Machine == "" && o.Runtime != Containerd {
		return "fixture:playground"
	}
	return o.Machine
}

// offers are the device plugins: one for GPUs and one for NICs. They offer the machine's PCI
// devices; on a machine without, four invented ones spread over its nodes.
func (p *Playground) offers() ([]plugin, error) {
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

// machineFile writes the agent's machine for the plugins, which may not see --topology-from's file.
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
