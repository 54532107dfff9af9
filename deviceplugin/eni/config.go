package eni

import (
	"cmp"
	"errors"
	"fmt"
	"log"
	"net/netip"
	"os"
	"slices"

	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/internal/strictyaml"
)

// Config says what to offer, and where.
type Config struct {
	// Interfaces are offered by these rules, in their order. Counts are other resources.
	Interfaces []Rule   `json:"interfaces,omitempty"`
	Counts     []Count  `json:"counts,omitempty"`
	Metadata   Metadata `json:"metadata,omitzero"`
	// NodeIPs are the node's addresses. Their interfaces are never offered, nor are those of
	// default routes.
	NodeIPs []string `json:"nodeIPs,omitempty"`
	// Move says who moves interfaces into containers.
	Move Move `json:"move,omitempty"`
	// Every is the interval between counts.
	Every string `json:"every,omitempty"`

	// Claims: a driver of resource claims hands out the interfaces. nil: device plugins do.
	Claims *Claims     `json:"-"`
	Places Places      `json:"-"`
	Log    *log.Logger `json:"-"`
	// Kernel and Mover default to netlink in the network namespace of the process.
	Kernel Kernel `json:"-"`
	Mover  Mover  `json:"-"`
}

// Places are paths on the host.
type Places struct {
	// Plugins is the device manager's directory, PodResources its socket that tells which pod has
	// what.
	Plugins, PodResources string
	// State holds the records of interfaces, CDI the specs and Infos the device-info files.
	State, CDI, Infos string
	// Sysfs, Proc and Dev are the kernel's; Namespaces are folders with network namespaces.
	Sysfs, Proc, Dev string
	Namespaces       []string
}

const maxConfig = 1 << 20

// ReadConfig reads a configuration file.
func ReadConfig(path string) (Config, error) {
	var cfg Config
	text, err := files.ReadNamed(path, maxConfig)
	if err == nil {
		err = strictyaml.Unmarshal(text, &cfg)
	}
	if err != nil {
		return cfg, fmt.Errorf("read configuration %s: %w", path, err)
	}
	return cfg, nil
}

// check returns everything that is wrong with a configuration.
func (c Config) check() error {
	if len(c.Interfaces)+len(c.Counts) == 0 {
		return errors.New("nothing is to be offered: give rules for interfaces, or counts")
	}
	var errs []error
	for _, r := range c.Interfaces {
		errs = append(errs, r.check())
	}
	counts := map[string]bool{}
	for _, count := range c.Counts {
		errs = append(errs, count.check(c.Metadata))
		if counts[count.Resource] || slices.ContainsFunc(c.Interfaces, func(r Rule) bool {
			return r.Resource == count.Resource
		}) {
			errs = append(errs, fmt.Errorf("resource %s: it is counted and has another rule or count",
				count.Resource))
		}
		counts[count.Resource] = true
	}
	_, err := c.addresses()
	errs = append(errs, err, c.Metadata.check())
	if !slices.Contains([]Move{"", ByNetwork, ByRuntime}, c.Move) {
		errs = append(errs, fmt.Errorf("move %q: want %s or %s", c.Move, ByNetwork, ByRuntime))
	}
	_, err = c.every()
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	if c.Claims != nil {
		if len(c.Interfaces) == 0 {
			return errors.New("no interfaces are to be offered to claims: give rules for them")
		}
		if len(c.Counts) == 0 {
			return nil // nothing registers as a device plugin
		}
	}
	info, err := os.Stat(c.Places.Plugins)
	if err != nil || !info.IsDir() {
		return fmt.Errorf("%s: there is no such directory: start the kubelet or numalet, which "+
			"makes it, or name the one of theirs by --dir", c.Places.Plugins)
	}
	return nil
}

func (c Config) addresses() (out []netip.Addr, err error) {
	for _, text := range c.NodeIPs {
		a, bad := netip.ParseAddr(text)
		if bad != nil {
			err = errors.Join(err, fmt.Errorf("node address %q: write an IP address", text))
		}
		out = append(out, a)
	}
	return out, err
}

func (c Config) withDefaults() Config {
	p := &c.Places
	p.Plugins = cmp.Or(p.Plugins, "/var/lib/kubelet/device-plugins")
	p.PodResources = cmp.Or(p.PodResources, "/var/lib/kubelet/pod-resources/kubelet.sock")
	p.State = cmp.Or(p.State, "/var/lib/numalet-eni")
	p.CDI = cmp.Or(p.CDI, "/var/run/cdi")
	p.Infos = cmp.Or(p.Infos, "/var/run/k8s.cni.cncf.io/devinfo/dp")
	p.Sysfs, p.Proc, p.Dev = cmp.Or(p.Sysfs, "/sys"), cmp.Or(p.Proc, "/proc"), cmp.Or(p.Dev, "/dev")
	if p.Namespaces == nil {
		p.Namespaces = []string{"/run/netns", "/run/docker/netns"}
	}
	if c.Claims != nil {
		c.Move = cmp.Or(c.Move, ByRuntime)
	}
	c.Move = cmp.Or(c.Move, ByNetwork)
	c.Log = cmp.Or(c.Log, log.New(os.Stderr, "", log.LstdFlags))
	return c
}
