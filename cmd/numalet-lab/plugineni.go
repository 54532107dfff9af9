package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/numalet/numalet/deviceplugin/dradriver"
	"github.com/numalet/numalet/deviceplugin/eni"
	"github.com/numalet/numalet/deviceplugin/eni/dra"

	"github.com/numalet/numalet/cmd/internal/cli"
)

// eniFlags holds the flags of "numalet plugin eni".
type eniFlags struct {
	file   string
	rule   eni.Rule
	counts []string
	cfg    eni.Config
	move   string
	places eni.Places
	claims *dradriver.Flags
}

// newPluginENICommand returns "numalet plugin eni".
func newPluginENICommand() *cobra.Command {
	f := &eniFlags{}
	cmd := &cobra.Command{
		Use:   "eni",
		Short: cli.LabShort["plugin eni"],
		Long: `Run a device plugin whose devices are network interfaces of this host: secondary
interfaces of a cloud, SR-IOV virtual functions, RDMA adapters. It works under the
kubelet as well, as root with the host's network and processes.

Flags choose the interfaces of one resource: those that meet each flag that is
given, with any of its values. A file (--config) can have several resources. What
the node itself lives on is never offered: the interface of the default route, those
with an address of --node-ip, and what is beneath them.

Of addresses for pods and members of trunks a node has so many. --count says how many,
NAME=SOURCE, where SOURCE is metadata:PATH, file:PATH or exec:COMMAND, which gives a
number or a list with a line for each.

With --dra it offers the interfaces to resource claims instead, as a DRA driver.

What is put into a container comes back when it is gone, and is as it was before
when it is offered again. docs/eni-plugin.md tells more.`,
		Example: `  numalet plugin eni --driver virtio_net --resource example.com/eni
  numalet plugin eni --virtual-of ens8f0 --rdma --resource example.com/rdma --move runtime
  numalet plugin eni --count example.com/eni-ip=metadata:network/private-ipv4s \
    --metadata-url http://169.254.169.254/latest/meta-data/
  numalet plugin eni --dra --virtual-of ens8f0 --kubeconfig /etc/kubernetes/kubelet.conf`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := f.config(cmd.Flags())
			if err != nil {
				return err
			}
			cfg.Log = log.New(cmd.OutOrStdout(), "", log.LstdFlags)
			if !f.claims.On {
				return eni.Run(cmd.Context(), cfg)
			}
			return f.driver(cmd.Context(), cfg)
		},
	}
	f.add(cmd.Flags())
	return cmd
}

// driver offers the interfaces to resource claims.
func (f *eniFlags) driver(ctx context.Context, cfg eni.Config) (err error) {
	claims := dra.Config{Config: cfg}
	if claims.Driver, err = f.claims.Config("numalet-eni", os.Getenv); err != nil {
		return err
	}
	claims.Driver.Driver = f.driverName(cfg)
	return dra.Run(ctx, claims)
}

// driverName is made of the first resource, if no other one is given.
func (f *eniFlags) driverName(cfg eni.Config) string {
	if f.claims.Driver != "" || len(cfg.Interfaces) == 0 {
		return f.claims.Driver
	}
	domain, name, _ := strings.Cut(cfg.Interfaces[0].Resource, "/")
	return strings.ToLower(name + "." + domain)
}

func (f *eniFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.file, "config", "", "YAML file with resources; flags come on top of it")
	flags.StringVar(&f.rule.Resource, "resource", "example.com/eni",
		"extended resource of the interfaces that the flags choose")
	flags.StringSliceVar(&f.rule.Drivers, "driver", nil,
		"driver of the interface or its PCI function, such as virtio_net or mlx5_core")
	flags.StringSliceVar(&f.rule.Vendors, "vendor", nil, "PCI id, 15b3 or 15b3:101e")
	flags.StringSliceVar(&f.rule.MACs, "mac", nil, "MAC address, or a pattern such as 02:1a:*")
	flags.StringSliceVar(&f.rule.Names, "name", nil, "interface name, or a pattern such as eth[1-9]")
	flags.StringSliceVar(&f.rule.Subnets, "subnet", nil, "subnet of the interface's addresses")
	flags.StringSliceVar(&f.rule.VirtualOf, "virtual-of", nil,
		`virtual functions of this physical one, by interface name or PCI address; "*" is any`)
	flags.BoolVar(&f.rule.RDMA, "rdma", false, "only interfaces with RDMA devices")
	flags.StringArrayVar(&f.counts, "count", nil,
		"resource of which there are so many, NAME=SOURCE; repeatable")
	flags.StringVar(&f.cfg.Metadata.URL, "metadata-url", "",
		"base URL of the cloud's metadata service")
	flags.StringVar(&f.cfg.Every, "count-every", "", "how often to count (30s)")
	flags.StringSliceVar(&f.cfg.NodeIPs, "node-ip", nil,
		"addresses of the node, whose interfaces are never offered")
	cli.Choose(flags, &f.move, "move", "", "who puts interfaces into containers: the pod's network "+
		"plugin (the default), or the container runtime, by CDI (the default with --dra)", string(eni.ByNetwork), string(eni.ByRuntime))
	f.claims = dradriver.AddFlags(flags, "interfaces", "", " (eni.example.com for the resource "+
		"example.com/eni)")
	f.addPlaces(flags)
}

func (f *eniFlags) addPlaces(flags *pflag.FlagSet) {
	p := &f.places
	for _, place := range []struct {
		field             *string
		name, value, what string
	}{
		{&p.Plugins, "dir", "/var/lib/kubelet/device-plugins",
			"device plugin directory of the kubelet"},
		{&p.PodResources, "pod-resources", "/var/lib/kubelet/pod-resources/kubelet.sock",
			"socket that tells which pods have which devices"},
		{&p.State, "state-dir", "/var/lib/numalet-eni",
			"where what interfaces were before containers had them is kept"},
		{&p.CDI, "cdi-dir", "/var/run/cdi", "where the container runtime looks for CDI specs"},
		{&p.Infos, "device-info-dir", "/var/run/k8s.cni.cncf.io/devinfo/dp",
			"where network plugins look for device-info files"},
		{&p.Sysfs, "sysfs", "/sys", "where sysfs is"},
	} {
		flags.StringVar(place.field, place.name, place.value, place.what)
	}
}

// config reads the configuration file and applies the flags on top of it.
func (f *eniFlags) config(flags *pflag.FlagSet) (cfg eni.Config, err error) {
	if err := f.claims.Check(flags); err != nil {
		return cfg, err
	}
	if f.file != "" {
		if cfg, err = eni.ReadConfig(f.file); err != nil {
			return cfg, err
		}
	}
	r := f.rule
	if len(r.Drivers)+len(r.Vendors)+len(r.MACs)+len(r.Names)+len(r.Subnets)+len(r.VirtualOf) > 0 ||
		r.RDMA {
		cfg.Interfaces = append([]eni.Rule{r}, cfg.Interfaces...)
	}
	for _, text := range f.counts {
		c, err := parseCount(text)
		if err != nil {
			return cfg, err
		}
		cfg.Counts = append(cfg.Counts, c)
	}
	if f.cfg.Metadata.URL != "" {
		cfg.Metadata.URL = f.cfg.Metadata.URL
	}
	if f.cfg.Every != "" {
		cfg.Every = f.cfg.Every
	}
	cfg.NodeIPs = append(cfg.NodeIPs, f.cfg.NodeIPs...)
	if cfg.Move == "" && !f.claims.On || flags.Changed("move") {
		cfg.Move = eni.Move(f.move)
	}
	cfg.Places = f.places
	return cfg, nil
}

// parseCount reads NAME=SOURCE.
func parseCount(text string) (c eni.Count, err error) {
	name, source, _ := strings.Cut(text, "=")
	kind, value, _ := strings.Cut(source, ":")
	c.Resource = name
	switch kind {
	case "metadata":
		c.Metadata = value
	case "file":
		c.File = value
	case "exec":
		c.Command = value
	default:
		return c, fmt.Errorf("--count %q: write NAME=SOURCE, where SOURCE is metadata:PATH, "+
			"file:PATH or exec:COMMAND", text)
	}
	return c, nil
}
