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

// Config says what to start and where.
type Config struct {
	// Binaries is the folder of containerd, containerd-shim-runc-v2 and ctr.
	Binaries string
	// Dir is an existing folder with a short absolute path, for everything containerd keeps.
	Dir string
	// CNI is the folder of the network plugins; "" is /usr/lib/cni.
	CNI string
	// Pause is the image of the sandboxes. It must be imported before the first one.
	Pause string
	// Systemd has systemd make the cgroups of containers.
	Systemd bool
}

// maxDir is what a path may have at most, so that a shim's socket, a hash of 64 digits in a folder
// in Dir, stays within the 107 bytes of a socket address (unix(7)).
const maxDir = 107 - len("/shim/") - 64

func (c Config) withDefaults() Config {
	c.CNI = cmp.Or(c.CNI, "/usr/lib/cni")
	return c
}

// Check tells what is missing on this machine to start containerd, all of it at once.
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

// Names in Dir. All of them are removed by Stop.
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

// templates are the files that containerd and its network plugins read. Everything is in Dir, also
// what would go to /run, /opt and /etc; OOM scores are taken as far as this process may set them.
// Each pod is joined to the host by a pair of interfaces that goes with the pod's network
// namespace, so that there is no bridge to leave behind.
//
//go:embed config.toml network.conflist
var templates embed.FS

func (c Config) path(name string) string { return filepath.Join(c.Dir, name) }

// write makes the folders and configuration files.
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

// Subnet is the pods' network, from the range for benchmarks (RFC 2544), which no real network
// should use. Two daemons at a time should not get the same one.
func (c Config) Subnet() string {
	sum := c.sum()
	return fmt.Sprintf("198.%d.%d.0/24", 18+sum&1, sum>>1&0xff)
}

// network is its name, the folder's own.
func (c Config) network() string { return fmt.Sprintf("numalet-%08x", c.sum()) }

// NetworkNotes is a pattern for the files that the CNI library keeps about the pods' networks,
// whatever folders it is given. Their folder is everybody's.
func (c Config) NetworkNotes() string {
	return filepath.Join("/var/lib/cni/results", c.network()+"-*")
}

func (c Config) sum() uint32 {
	h := fnv.New32a()
	h.Write([]byte(c.Dir))
	return h.Sum32()
}
