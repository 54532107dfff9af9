package containerd

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"
)

// Config says which containerd to start and where.
type Config struct {
	// Binaries is the directory of containerd, containerd-shim-runc-v2 and ctr.
	Binaries string
	// Dir is an existing directory with a short absolute path. It holds all files of containerd.
	Dir string
	// CNI is the directory of the network plugins; "" means /usr/lib/cni.
	CNI string
	// Pause is the image of the sandboxes. It must be imported before the first sandbox.
	Pause string
	// Systemd makes containerd create the containers' cgroups through systemd.
	Systemd bool
}

// maxDir is the longest path of Dir in bytes. A shim's socket, a hash of 64 digits below Dir, must
// fit into the 107 bytes of a socket address (unix(7)).
const maxDir = 107 - len("/shim/") - 64

func (c Config) withDefaults() Config {
	c.CNI = cmp.Or(c.CNI, "/usr/lib/cni")
	return c
}

// Check lists everything that this machine lacks to start containerd.
func (c Config) Check() error {
	c = c.withDefaults()
	var missing []string
	if os.Geteuid() != 0 {
		missing = append(missing, "root")
	}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr"} {
		if _, err := os.Stat(filepath.Join(c.Binaries, name)); err != nil {
			missing = append(missing, name+" in "+c.Binaries+" (test/tools/build.sh builds it)")
		}
	}
	if _, err := exec.LookPath("runc"); err != nil {
		missing = append(missing, "runc (apt-get install runc)")
	}
	for _, name := range []string{"ptp", "host-local", "loopback"} {
		if _, err := os.Stat(filepath.Join(c.CNI, name)); err != nil {
			missing = append(missing, name+" in "+c.CNI+
				" (apt-get install containernetworking-plugins)")
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("a real containerd needs: %s", strings.Join(missing, ", "))
	}
	return nil
}

func (c Config) checkDir() error {
	if !filepath.IsAbs(c.Dir) || filepath.Clean(c.Dir) != c.Dir || c.Dir == "/" {
		return fmt.Errorf("containerd folder %q: must be a clean absolute path", c.Dir)
	}
	if len(c.Dir) > maxDir {
		return fmt.Errorf("containerd folder %q: longer than %d bytes, which makes socket "+
			"addresses too long: choose a shorter one", c.Dir, maxDir)
	}
	return nil
}

// Names of the files in Dir. Stop removes them.
const (
	configFile  = "config.toml"
	socketFile  = "containerd.sock"
	logFile     = "containerd.log"
	forwardFile = "ip_forward" // the machine's setting before we started
	networkFile = "cni.conf/10-numalet.conflist"
)

func ownNames() []string {
	return []string{
		configFile, socketFile, socketFile + ".ttrpc", logFile, forwardFile,
		"root", "state", "shim", "runc", "cni.conf", "cni.state", "cdi", "hosts", "opt", "tmp",
	}
}

// templates holds the files that containerd and its network plugins read. They keep everything in
// Dir that would otherwise go to /run, /opt and /etc, and set only OOM scores that this process may
// set. A pair of interfaces joins each pod to the host and disappears with the pod's network
// namespace, so no bridge is left behind.
//
//go:embed config.toml network.conflist
var templates embed.FS

func (c Config) path(name string) string { return filepath.Join(c.Dir, name) }

// write creates the directories and configuration files.
func (c Config) write(snapshotter string) error {
	for _, name := range []string{"shim", "cni.conf", "cdi", "hosts", "tmp"} {
		if err := os.MkdirAll(c.path(name), 0o755); err != nil {
			return err
		}
	}
	values := struct {
		Config
		Snapshotter, Network, Subnet, NetworkState string
	}{c, snapshotter, c.network(), c.Subnet(), c.path("cni.state")}
	t, err := template.ParseFS(templates, "*")
	if err != nil {
		return err
	}
	for source, name := range map[string]string{
		"config.toml": configFile, "network.conflist": networkFile,
	} {
		var text bytes.Buffer
		if err := t.ExecuteTemplate(&text, source, values); err != nil {
			return err
		}
		if err := os.WriteFile(c.path(name), text.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Subnet returns the pods' network, out of the range for benchmarks (RFC 2544) that no real network
// should use. It is derived from Dir, so that two daemons rarely share one.
func (c Config) Subnet() string {
	sum := c.sum()
	return fmt.Sprintf("198.%d.%d.0/24", 18+sum&1, sum>>1&0xff)
}

// network returns the name of the pods' network, which is derived from Dir.
func (c Config) network() string { return fmt.Sprintf("numalet-%08x", c.sum()) }

// NetworkNotes returns a pattern for the files that the CNI library keeps about the pods' networks.
// The library always writes them to one directory that all its users share.
func (c Config) NetworkNotes() string {
	return filepath.Join("/var/lib/cni/results", c.network()+"-*")
}

func (c Config) sum() uint32 {
	h := fnv.New32a()
	h.Write([]byte(c.Dir))
	return h.Sum32()
}
