package config

import (
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/numalet/numalet/internal/version"
)

// Flags is the command line. Call AddFlags, then parse, then Load.
type Flags struct {
	Options

	// own holds the flags that are neither options nor fields: --config, --config-dir and --version.
	own    struct{ config, dropIns, print string }
	fields givenFields
	// set is the flag set that the caller parses.
	set *pflag.FlagSet
}

// givenFields holds the parsed flags for fields of the configuration.
type givenFields struct {
	// shown receives the flags' values while parsing; its own values are the defaults in --help. apply
	// writes the values to the real configuration.
	shown kubeletv1beta1.KubeletConfiguration
	// raw holds the values given to each flag, in order.
	raw map[string][]string
}

const deprecation = "set it in the file given with --config. See " +
	"https://kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file/"

// AddFlags registers the kubelet's flags and ours. Underscores in flag names count as dashes.
func AddFlags(fs *pflag.FlagSet) *Flags {
	f := &Flags{set: fs}
	f.fields.raw = map[string][]string{}
	applyDefaults(&f.fields.shown)
	fs.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)

	own := pflag.NewFlagSet("fields", pflag.ContinueOnError)
	bindFields(own, &f.fields.shown)
	bindLogging(own, &f.fields.shown)
	own.VisitAll(func(flag *pflag.Flag) {
		flag.Value = recorder{Value: flag.Value, name: flag.Name, into: f.fields.raw}
		if _, keep := currentFieldFlags()[flag.Name]; !keep {
			flag.Deprecated = deprecation
		}
		fs.AddFlag(flag)
	})
	f.add(fs)
	return f
}

// add registers the flags without a field in KubeletConfiguration.
func (f *Flags) add(fs *pflag.FlagSet) {
	f.addOptions(fs)
	f.addGroups(fs)
	f.addCluster(fs)
	f.addLegacy(fs)
	f.addPast(fs)
}

// addGroups registers the flags that the kubelet does not have and that belong together.
func (f *Flags) addGroups(fs *pflag.FlagSet) {
	f.DevicePlugins.add(fs)
	f.Placement.add(fs)
	f.Failures.add(fs)
}

// namesOf returns the names of the flags that add registers.
func namesOf(add func(*pflag.FlagSet)) (names []string) {
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	add(set)
	set.VisitAll(func(flag *pflag.Flag) { names = append(names, flag.Name) })
	return names
}

// currentFieldFlags lists flags for configuration fields that the kubelet does not deprecate.
func currentFieldFlags() map[string]struct{} {
	return map[string]struct{}{
		"seccomp-default": {}, "provider-id": {}, "fail-cgroupv1": {},
		"v": {}, "vmodule": {}, logsapi.LogFlushFreqFlagName: {},
	}
}

func (f *Flags) addOptions(fs *pflag.FlagSet) {
	fs.StringVar(&f.own.config, "config", "",
		"file with a KubeletConfiguration (kubelet.config.k8s.io/v1beta1); flags win over it")
	fs.StringVar(&f.own.dropIns, "config-dir", "",
		"directory of *.conf drop-ins, merged over --config in lexical order")
	fs.StringVar(&f.RootDir, "root-dir", "/var/lib/kubelet",
		"directory for state files, plugin sockets and pod directories")
	fs.StringVar(&f.Node.HostnameOverride, "hostname-override", "",
		"node name to use in place of the host's name")
	fs.StringVar(&f.Node.IP, "node-ip", "",
		"address of the node, or an IPv4 and an IPv6 address with a comma")
	fs.Var(cliflag.NewMapStringString(&f.Node.Labels), "node-labels",
		"labels of the node, key=value with commas")
	fs.StringVar(&f.Lock.Path, "lock-file", "", "file to lock, so that only one agent runs")
	fs.BoolVar(&f.Lock.ExitOnContention, "exit-on-lock-contention", false,
		"exit when another process wants the lock file")
	fs.StringVar(&f.TopologyFrom, "topology-from", "",
		"use this machine in place of the host: a ghw snapshot (archive or tree) or our YAML")
	fs.DurationVar(&f.DevicePlugins.Wait, "device-admission-wait", 2*time.Minute,
		"how long a pod waits for its device plugin, its devices or objects that it lacks; 0: not at all")
	fs.BoolVar(&f.RefuseUnknownFields, "refuse-unknown-fields", false,
		"refuse manifests with fields that the API does not have or that are given twice; "+
			"else they are ignored and reported")
	fs.StringVar(&f.own.print, "version", "false",
		"print the version and exit; --version=raw prints all that is known of the build")
	fs.Lookup("version").NoOptDefVal = "true"
}

func (f *Flags) addCluster(fs *pflag.FlagSet) {
	fs.StringVar(&f.Cluster.Kubeconfig, "kubeconfig", "",
		"how to reach the API server; without it the agent runs standalone")
	fs.StringVar(&f.Cluster.BootstrapKubeconfig, "bootstrap-kubeconfig", "",
		"kubeconfig to ask for the first client certificate with")
	fs.StringVar(&f.Cluster.CertDir, "cert-dir", "/var/lib/kubelet/pki",
		"directory of the node's certificates")
	fs.StringVar(&f.Cluster.Provider, "cloud-provider", "",
		`empty, or "external" when a cloud controller manager initialises nodes`)
	fs.StringVar(&f.Cluster.CredentialProviderConfig, "image-credential-provider-config", "",
		"file or directory of the credential providers' configuration")
	fs.StringVar(&f.Cluster.CredentialProviderDir, "image-credential-provider-bin-dir", "",
		"directory of the credential providers' programs")
}

// addLegacy registers flags of the kubelet that are accepted for the sake of its command lines.
func (f *Flags) addLegacy(fs *pflag.FlagSet) {
	fs.StringVar(&f.RuntimeCgroups, "runtime-cgroups", "",
		"cgroup to run the container runtime in and to report its use of")
	fs.Duration("housekeeping-interval", 10*time.Second,
		"time between two readings of container statistics")
}

// addPast registers flags of the kubelet that will be removed.
func (f *Flags) addPast(fs *pflag.FlagSet) {
	past := pflag.NewFlagSet("past", pflag.ContinueOnError)
	past.DurationVar(&f.DeadContainers.Age, "minimum-container-ttl-duration", 0,
		"age from which dead containers may be removed")
	past.Int32Var(&f.DeadContainers.PerContainer, "maximum-dead-containers-per-container", 1,
		"dead instances to keep of each container beside the newest one; negative: all")
	past.Int32Var(&f.DeadContainers.Most, "maximum-dead-containers", -1,
		"dead containers to keep in all; negative: no limit")
	past.StringVar(&f.MounterPath, "experimental-mounter-path", "",
		"program that mounts NFS volumes: it gets the word mount and its arguments")
	past.BoolVar(&f.IgnoreEviction, "experimental-allocatable-ignore-eviction", false,
		"do not subtract hard eviction thresholds from the node's allocatable resources")
	past.VisitAll(func(flag *pflag.Flag) {
		flag.Deprecated = "it will go away; eviction settings replace it"
	})
	fs.AddFlagSet(past)
}

// PrintVersion prints the version if --version was given, and reports whether it was.
func (f *Flags) PrintVersion(w io.Writer, program string) (bool, error) {
	var err error
	switch f.own.print {
	case "false", "":
		return false, nil
	case "raw":
		_, err = fmt.Fprintf(w, "%#v\n", version.Get())
	default:
		_, err = fmt.Fprintf(w, "%s %s\n", program, version.Get())
	}
	return true, err
}

// apply sets the fields of c whose flags were given.
func (f *Flags) apply(c *kubeletv1beta1.KubeletConfiguration) error {
	fs := pflag.NewFlagSet("apply", pflag.ContinueOnError)
	bindFields(fs, c)
	bindLogging(fs, c)
	gates := maps.Clone(c.FeatureGates)
	for name, values := range f.fields.raw {
		for _, value := range values {
			if err := fs.Lookup(name).Value.Set(value); err != nil {
				return fmt.Errorf("flag --%s: %w", name, err)
			}
		}
	}
	if len(f.fields.raw["feature-gates"]) > 0 { // merged, not replaced
		if gates == nil {
			gates = map[string]bool{}
		}
		maps.Copy(gates, c.FeatureGates)
		c.FeatureGates = gates
	}
	return nil
}

// bindFields registers a flag for each row of fieldFlags that writes to the field of c. The values
// in c become the flags' defaults.
func bindFields(fs *pflag.FlagSet, c *kubeletv1beta1.KubeletConfiguration) {
	root := reflect.ValueOf(c).Elem()
	for _, row := range fieldFlags() {
		bind(fs, row, fieldAt(root, row.Path))
	}
}

// bindLogging registers the logging library's flags, and restores the fields that the library
// resets.
func bindLogging(fs *pflag.FlagSet, c *kubeletv1beta1.KubeletConfiguration) {
	saved := *c.Logging.DeepCopy()
	logsapi.AddFlags(&c.Logging, fs)
	c.Logging = saved
}

// recorder records the values of a flag.
type recorder struct {
	pflag.Value
	name string
	into map[string][]string
}

// Set implements pflag.Value.
func (r recorder) Set(s string) error {
	if err := r.Value.Set(s); err != nil {
		return err
	}
	r.into[r.name] = append(r.into[r.name], s)
	return nil
}

// options returns the names of the given flags without a field in KubeletConfiguration.
func (f *Flags) options() []string {
	return slices.DeleteFunc(namesOf(new(Flags).add),
		func(name string) bool { return !f.set.Changed(name) })
}

// given returns the names of all given flags.
func (f *Flags) given() []string {
	return slices.AppendSeq(f.options(), maps.Keys(f.fields.raw))
}
