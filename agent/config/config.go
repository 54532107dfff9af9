package config

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // the "json" log format
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

// Config is everything the agent was told, checked and with all defaults filled in. It does not
// change after Load.
type Config struct {
	Options

	// Kubelet has every default applied: pointers with a default are never nil. The exceptions,
	// nil meaning "not set", are singleProcessOOMKill, maxParallelImagePulls,
	// memoryThrottlingFactor and tracing.
	Kubelet kubeletv1beta1.KubeletConfiguration
	// Gates answers for every gate the kubelet knows, and for the logging library's.
	Gates featuregate.FeatureGate
	given given
}

// given is what of the files and the command line others may want to see.
type given struct {
	unhonoured []string
	flags      map[string]string
}

// Options are the flags that have no field in KubeletConfiguration.
type Options struct {
	// RootDir holds the agent's state, plugin sockets and pod directories.
	RootDir string
	Node    NodeOptions
	Lock    LockFile

	// TopologyFrom is a captured machine to use in place of the host's; empty: the host.
	TopologyFrom  string
	DevicePlugins DevicePlugins
	// RefuseUnknownFields refuses manifests with fields that the API does not have.
	RefuseUnknownFields bool
	Placement           Placement

	Cluster        Cluster
	DeadContainers DeadContainers
}

// NodeOptions say which node the agent is.
type NodeOptions struct {
	// HostnameOverride replaces the host's name as the node's name. See NodeName.
	HostnameOverride string
	// IP is one address, or an IPv4 and an IPv6 address with a comma. May be empty. NodeIPs reads it.
	IP     string
	Labels map[string]string
}

// LockFile is a file that only one agent has locked.
type LockFile struct {
	Path string // "": none
	// ExitOnContention: the agent ends when another process wants the file.
	ExitOnContention bool
}

// DeadContainers says which records of containers that have exited stay in the runtime.
type DeadContainers struct {
	// PerContainer is how many stay of each container beside its newest record, Most how many of
	// all; negative: no bound.
	PerContainer, Most int32
	// Age is the least age of those that are removed.
	Age time.Duration
}

// Cluster are the options of an agent with an API server. Kubeconfig empty means standalone.
type Cluster struct {
	Kubeconfig, BootstrapKubeconfig string
	CertDir                         string
	// Provider is "" or "external".
	Provider string
	// CredentialProviderConfig and CredentialProviderDir belong to image pulls.
	CredentialProviderConfig, CredentialProviderDir string
}

// Unhonoured names what the user set, as a field path or a flag, that is accepted and has no
// effect in this version, sorted. A part in parentheses tells what does work.
func (c *Config) Unhonoured() []string { return slices.Clone(c.given.unhonoured) }

// masked stands for what often carries credentials.
const masked = "<masked>"

// Shown is the effective KubeletConfiguration for others to see: the values of staticPodURLHeader
// are masked.
func (c *Config) Shown() *kubeletv1beta1.KubeletConfiguration {
	k := c.Kubelet.DeepCopy()
	for _, values := range k.StaticPodURLHeader {
		for i := range values {
			values[i] = masked
		}
	}
	return k
}

// Flags are those of the command line with their values, for others to see, by name.
func (c *Config) Flags() map[string]string { return maps.Clone(c.given.flags) }

// YAML is Shown for the log.
func (c *Config) YAML() (string, error) {
	out, err := yaml.Marshal(c.Shown())
	if err != nil {
		return "", fmt.Errorf("print configuration: %w", err)
	}
	return string(out), nil
}

// NodeName is the node's name: the override or the host's name, trimmed and in lower case.
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
