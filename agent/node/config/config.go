package config

import (
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/stats"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // the "json" log format
	"k8s.io/component-base/metrics"
	metricsfeatures "k8s.io/component-base/metrics/features"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"sigs.k8s.io/yaml"
)

// Config is the checked configuration with all defaults. It does not change after Load.
type Config struct {
	Options

	// Kubelet has all defaults applied: pointers with a default are never nil. Without a default, and
	// so nil if not set, are singleProcessOOMKill, maxParallelImagePulls, memoryThrottlingFactor and
	// tracing.
	Kubelet kubeletv1beta1.KubeletConfiguration
	// Gates knows every gate of the kubelet and of the logging library.
	Gates featuregate.FeatureGate
	given given
	Around
}

// Around lets a program around the agent, such as a playground, hear and change things. No flag sets it.
type Around struct {
	// Heard returns the handler of the messages to and from plugins and drivers at a socket; nil: none.
	Heard func(socket string) stats.Handler
	// Played changes what the node is measured to use, before it is compared with thresholds of evictions;
	// nil: nothing does. It must not change what pointers lead to.
	Played func(*statsapi.NodeStats)
}

// given holds what the files and the command line set.
type given struct {
	unhonoured []string
	settings   []Setting
	flags      map[string]string
	shown      []string // the flags that were given, for display
}

// Options holds the flags that have no field in KubeletConfiguration.
type Options struct {
	// RootDir holds the agent's state, plugin sockets and pod directories.
	RootDir string
	Node    NodeOptions
	Lock    LockFile

	// TopologyFrom names a captured machine that replaces the host; empty: the host.
	TopologyFrom  string
	DevicePlugins DevicePlugins
	// RefuseUnknownFields refuses manifests with fields unknown to the API.
	RefuseUnknownFields bool
	Placement           Placement
	Failures            DeviceFailures

	Cluster        Cluster
	DeadContainers DeadContainers
	// RuntimeCgroups is the cgroup of the container runtime; "": where it was started.
	RuntimeCgroups string
	Past
}

// Past holds flags that kubelets are to lose.
type Past struct {
	// IgnoreEviction lets pods request what hard eviction keeps free.
	IgnoreEviction bool
	// MounterPath is a program that mounts NFS volumes, given mount and its arguments; "": mount.
	MounterPath string
}

// NodeOptions identify the node.
type NodeOptions struct {
	// HostnameOverride replaces the host's name as the node's name. See NodeName.
	HostnameOverride string
	// IP is empty, one address, or an IPv4 and an IPv6 address separated by a comma. See NodeIPs.
	IP     string
	Labels map[string]string
}

// LockFile is a file that only one agent at a time has locked.
type LockFile struct {
	Path string // "": none
	// ExitOnContention ends the agent when another process wants the lock.
	ExitOnContention bool
}

// DeadContainers says which exited containers stay in the runtime.
type DeadContainers struct {
	// PerContainer bounds how many of each container stay beside its newest one, Most how many stay in
	// total; negative: no bound.
	PerContainer, Most int32
	// Age is the least age at which containers are removed.
	Age time.Duration
}

// Cluster holds the options of an agent with an API server. An empty Kubeconfig means standalone.
type Cluster struct {
	Kubeconfig, BootstrapKubeconfig string
	CertDir                         string
	// Provider is "" or "external".
	Provider string
	// CredentialProviderConfig and CredentialProviderDir are for image pulls.
	CredentialProviderConfig, CredentialProviderDir string
}

// Unhonoured lists, sorted, the field paths and flags that the user set, and that are accepted
// without effect in this version. A part in parentheses names what does work.
func (c *Config) Unhonoured() []string { return slices.Clone(c.given.unhonoured) }

// Enabled reports whether the feature gate of that name is on.
func (c *Config) Enabled(gate string) bool { return c.Gates.Enabled(featuregate.Feature(gate)) }

// masked replaces values that often contain credentials.
const masked = "<masked>"

// Shown returns the effective KubeletConfiguration for display, with the values of
// staticPodURLHeader, and the password and query of staticPodURL, masked.
func (c *Config) Shown() *kubeletv1beta1.KubeletConfiguration {
	k := c.Kubelet.DeepCopy()
	k.StaticPodURL = withoutSecrets(k.StaticPodURL)
	for _, values := range k.StaticPodURLHeader {
		for i := range values {
			values[i] = masked
		}
	}
	return k
}

// withoutSecrets masks the password and the query of a URL. A text that is none has been refused
// before.
func withoutSecrets(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return masked
	}
	if u.RawQuery != "" {
		u.RawQuery = "xxxxx"
	}
	return u.Redacted()
}

// Flags returns the command line's flags and their values for display, by name.
func (c *Config) Flags() map[string]string { return maps.Clone(c.given.flags) }

// Given lists the flags that were given and their values for display, by name.
func (c *Config) Given() []string { return slices.Clone(c.given.shown) }

// YAML returns Shown as YAML, for the log.
func (c *Config) YAML() (string, error) {
	out, err := yaml.Marshal(c.Shown())
	if err != nil {
		return "", fmt.Errorf("print configuration: %w", err)
	}
	return string(out), nil
}

// NodeName returns the node's name: the override or the host's name, trimmed and in lower case.
func (c *Config) NodeName() (string, error) {
	name := c.Node.HostnameOverride
	if name == "" {
		host, err := os.Hostname()
		if err != nil {
			return "", fmt.Errorf("read host name: %w; give --hostname-override", err)
		}
		name = host
	}
	name = strings.ToLower(strings.TrimSpace(name))
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return "", fmt.Errorf("node name %q: %s; give --hostname-override", name, problems[0])
	}
	return name, nil
}

// ApplyLogging sets up klog for the whole process; call it once, before any goroutine logs.
func (c *Config) ApplyLogging() error {
	path := field.NewPath("logging")
	if err := logsapi.ValidateAndApplyAsField(&c.Kubelet.Logging, c.Gates, path); err != nil {
		return fmt.Errorf("set up logging: %w", err)
	}
	return nil
}

// ApplyMetrics sets up metrics for the whole process; call it once, before any is registered.
func (c *Config) ApplyMetrics() {
	metricsfeatures.ApplyFeatureGates(c.Gates)
	if c.Kubelet.ShowHiddenMetricsForVersion != "" {
		metrics.SetShowHidden()
	}
}
