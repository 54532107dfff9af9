package cri

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The limits of a pod's resolv.conf (resolv.conf(5), and Kubernetes' own for search domains).
const (
	maxNameservers   = 3
	maxSearchDomains = 32
	maxSearchChars   = 2048
)

// DNS is the node's side of name resolution in pods.
type DNS struct {
	// Host is the node's own resolver configuration.
	Host *runtimeapi.DNSConfig
	// Servers are clusterDNS, Domain is clusterDomain.
	Servers []string
	Domain  string
}

// ParseResolvConf reads the format of resolv.conf(5). Lines that it does not know are passed over,
// as the resolver does.
func ParseResolvConf(r io.Reader) (*runtimeapi.DNSConfig, error) {
	out := &runtimeapi.DNSConfig{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) < 2 || strings.HasPrefix(words[0], "#") || strings.HasPrefix(words[0], ";") {
			continue
		}
		switch words[0] {
		case "nameserver":
			out.Servers = append(out.Servers, words[1])
		case "search", "domain": // the last of them counts
			out.Searches = words[1:]
		case "options":
			out.Options = words[1:]
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read resolv.conf: %w", err)
	}
	return out, nil
}

// Config is the pod's resolver configuration by its dnsPolicy and dnsConfig
// (https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/). Without clusterDNS
// pods get the host's. What goes beyond the limits is left out.
func (d DNS) Config(pod *v1.Pod) *runtimeapi.DNSConfig {
	var out *runtimeapi.DNSConfig
	switch {
	case pod.Spec.DNSPolicy == v1.DNSNone:
		out = &runtimeapi.DNSConfig{}
	case d.usesCluster(pod):
		cluster := []string{pod.Namespace + ".svc." + d.Domain, "svc." + d.Domain, d.Domain}
		if d.Domain == "" {
			cluster = nil
		}
		out = &runtimeapi.DNSConfig{
			Servers:  slices.Clone(d.Servers),
			Searches: append(cluster, d.Host.GetSearches()...),
			Options:  []string{"ndots:5"},
		}
	default:
		out = &runtimeapi.DNSConfig{
			Servers:  slices.Clone(d.Host.GetServers()),
			Searches: slices.Clone(d.Host.GetSearches()),
			Options:  slices.Clone(d.Host.GetOptions()),
		}
	}
	if own := pod.Spec.DNSConfig; own != nil {
		out.Servers = append(out.Servers, own.Nameservers...)
		out.Searches = append(out.Searches, own.Searches...)
		out.Options = withOptions(out.Options, own.Options)
	}
	out.Servers = slices.Compact(out.Servers)
	out.Servers = out.Servers[:min(len(out.Servers), maxNameservers)]
	out.Searches = withinLimits(out.Searches)
	return out
}

func (d DNS) usesCluster(pod *v1.Pod) bool {
	if len(d.Servers) == 0 {
		return false
	}
	return pod.Spec.DNSPolicy == v1.DNSClusterFirstWithHostNet ||
		pod.Spec.DNSPolicy == v1.DNSClusterFirst && !pod.Spec.HostNetwork
}

// withOptions adds the pod's options; one of the same name takes the place of the other.
func withOptions(options []string, own []v1.PodDNSConfigOption) []string {
	for _, o := range own {
		text := o.Name
		if o.Value != nil {
			text += ":" + *o.Value
		}
		options = slices.DeleteFunc(options, func(old string) bool {
			name, _, _ := strings.Cut(old, ":")
			return name == o.Name
		})
		options = append(options, text)
	}
	return options
}

// withinLimits keeps each search domain once, as many as fit.
func withinLimits(searches []string) []string {
	var out []string
	chars := 0
	for _, s := range searches {
		if slices.Contains(out, s) {
			continue
		}
		if len(out) == maxSearchDomains || chars+len(s)+1 > maxSearchChars {
			break
		}
		out = append(out, s)
		chars += len(s) + 1
	}
	return out
}
