package cri

import (
	"fmt"
	"io"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The limits of a pod's resolv.conf (resolv.conf(5); Kubernetes has its own for search domains).
const (
	maxNameservers   = 3
	maxSearchDomains = 32
	maxSearchChars   = 2048
	// clusterSearches counts the search domains of the pod's namespace, of services and of the
	// cluster.
	clusterSearches = 3
)

// maxResolvConf bounds the size of a resolv.conf in bytes.
const maxResolvConf = 10 << 20

// DNS holds the node's settings for name resolution in pods.
type DNS struct {
	// Host is the node's own resolver configuration. If it is nil, pods get none of it, and pods that
	// would use the host's servers ask the local machine.
	Host *runtimeapi.DNSConfig
	// Servers holds clusterDNS, Domain clusterDomain.
	Servers []string
	Domain  string
	// IPv6 is set if the node's primary address is an IPv6 address.
	IPv6 bool
}

// DNSProblem is an event that tells why a pod's resolver configuration differs from its spec.
type DNSProblem struct {
	Reason  string
	Message string
	// Node is set if the node is at fault: the message of an event about the node, without the pod's
	// name.
	Node string
}

// ParseResolvConf reads the format of resolv.conf(5). It skips unknown lines, as the resolver does.
func ParseResolvConf(r io.Reader) (*runtimeapi.DNSConfig, error) {
	out := &runtimeapi.DNSConfig{}
	text, err := io.ReadAll(io.LimitReader(r, maxResolvConf+1))
	if err != nil {
		return nil, fmt.Errorf("read resolv.conf: %w", err)
	}
	if len(text) > maxResolvConf {
		return nil, fmt.Errorf("resolv.conf has more than %d bytes", maxResolvConf)
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) < 2 || strings.HasPrefix(words[0], "#") || strings.HasPrefix(words[0], ";") {
			continue
		}
		switch words[0] {
		case "nameserver":
			out.Servers = append(out.Servers, words[1])
		case "search", "domain": // the last of them counts
			out.Searches = nil
			for _, domain := range words[1:] {
				if domain != "." {
					out.Searches = append(out.Searches, strings.TrimSuffix(domain, "."))
				}
			}
		case "options":
			out.Options = words[1:]
		}
	}
	return out, nil
}

// HostProblem says, in the kubelet's words, why pods cannot have the whole search line of the
// node's resolver configuration, at path, beside the cluster's domains. It is "" if they can.
func (d DNS) HostProblem(path string) string {
	if d.Host == nil {
		return ""
	}
	most := maxSearchDomains
	if d.Domain != "" {
		most -= clusterSearches
	}
	file := fmt.Sprintf("Resolv.conf file '%s' contains search line ", path)
	switch {
	case len(d.Host.GetSearches()) > most:
		return file + fmt.Sprintf("consisting of more than %d domains!", most)
	case len(strings.Join(d.Host.GetSearches(), " ")) > maxSearchChars:
		return file + fmt.Sprintf("which length is more than allowed %d chars!", maxSearchChars)
	default:
		return ""
	}
}

// Config returns the pod's resolver configuration by its dnsPolicy and dnsConfig
// (https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/). Without clusterDNS
// pods get the host's. Entries beyond the limits are dropped.
func (d DNS) Config(pod *v1.Pod) (*runtimeapi.DNSConfig, []DNSProblem) {
	out, problems := d.base(pod)
	if own := pod.Spec.DNSConfig; own != nil {
		out.Servers = append(out.Servers, own.Nameservers...)
		out.Searches = append(out.Searches, own.Searches...)
		out.Options = withOptions(out.Options, own.Options)
	}
	const exceeded = "%s limits were exceeded, some %s have been omitted, the applied %s line is: %s"
	beyond := func(what, some, line string, applied []string) {
		problems = append(problems, DNSProblem{Reason: "DNSConfigForming", Message: fmt.Sprintf(
			exceeded, what, some, line, strings.Join(applied, " "))})
	}
	out.Servers = once(out.Servers)
	if len(out.Servers) > maxNameservers {
		out.Servers = out.Servers[:maxNameservers]
		beyond("Nameserver", "nameservers", "nameserver", out.Servers)
	}
	wanted := once(out.Searches)
	if out.Searches = withinLimits(wanted); len(out.Searches) < len(wanted) {
		beyond("Search Line", "search paths", "search", out.Searches)
	}
	return out, problems
}

// base returns the configuration by the pod's dnsPolicy alone.
func (d DNS) base(pod *v1.Pod) (*runtimeapi.DNSConfig, []DNSProblem) {
	switch {
	case pod.Spec.DNSPolicy == v1.DNSNone:
		return &runtimeapi.DNSConfig{}, nil
	case !wantsCluster(pod):
		return d.host(), nil
	case len(d.Servers) == 0:
		message := fmt.Sprintf("kubelet does not have ClusterDNS IP configured and cannot create "+
			"Pod using %q policy. Falling back to %q policy.", v1.DNSClusterFirst, v1.DNSDefault)
		return d.host(), []DNSProblem{{
			Reason: "MissingClusterDNS", Node: message,
			Message: fmt.Sprintf("pod: %q. %s",
				pod.Name+"_"+pod.Namespace+"("+string(pod.UID)+")", message),
		}}
	}
	cluster := []string{pod.Namespace + ".svc." + d.Domain, "svc." + d.Domain, d.Domain}
	if d.Domain == "" {
		cluster = nil
	}
	return &runtimeapi.DNSConfig{
		Servers:  slices.Clone(d.Servers),
		Searches: append(cluster, d.Host.GetSearches()...),
		Options:  []string{"ndots:5"},
	}, nil
}

// host returns the node's own configuration.
func (d DNS) host() *runtimeapi.DNSConfig {
	if d.Host == nil {
		local := "127.0.0.1"
		if d.IPv6 {
			local = "::1"
		}
		return &runtimeapi.DNSConfig{Servers: []string{local}, Searches: []string{"."}}
	}
	return &runtimeapi.DNSConfig{
		Servers:  slices.Clone(d.Host.GetServers()),
		Searches: slices.Clone(d.Host.GetSearches()),
		Options:  slices.Clone(d.Host.GetOptions()),
	}
}

// wantsCluster treats an unknown policy as the default one.
func wantsCluster(pod *v1.Pod) bool {
	switch pod.Spec.DNSPolicy {
	case v1.DNSDefault:
		return false
	case v1.DNSClusterFirst:
		return !pod.Spec.HostNetwork
	default:
		return true
	}
}

// withOptions adds the pod's options. They replace options of the same name.
func withOptions(options []string, own []v1.PodDNSConfigOption) []string {
	for _, o := range own {
		text := o.Name
		if o.Value != nil && *o.Value != "" {
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

// once returns the list without repetitions.
func once(list []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(list), func(text string) bool {
		again := seen[text]
		seen[text] = true
		return again
	})
}

// withinLimits keeps as many search domains as fit.
func withinLimits(searches []string) []string {
	chars := -len(" ")
	for i, s := range searches {
		if chars += len(" ") + len(s); i == maxSearchDomains || chars > maxSearchChars {
			return searches[:i]
		}
	}
	return searches
}
