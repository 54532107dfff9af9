package cri

import (
	"fmt"
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/node/util/sysctl"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/topology/podspec"
)

// maxHostname and maxFQDN bound host names and FQDNs in bytes: Linux allows 64 (__NEW_UTS_LEN), a
// DNS label has 63.
const (
	maxHostname = 63
	maxFQDN     = 64
)

// SandboxOptions holds what the node adds to a pod's sandbox.
type SandboxOptions struct {
	// Attempt counts the sandboxes that this pod had before.
	Attempt uint32
	// LogsDir is the node's pod log root.
	LogsDir string
	// CgroupParent is the pod's cgroup in the syntax of the runtime's cgroup driver.
	CgroupParent string
	// ClusterDomain completes the FQDN of pods that have a subdomain.
	ClusterDomain string
	// DNS becomes the pod's resolv.conf; nil keeps the runtime's default.
	DNS *runtimeapi.DNSConfig
	// ExtraGroups are groups that volumes grant to every process of the pod.
	ExtraGroups []int64
	// IDs holds the ids of a pod with a user namespace.
	IDs       *IDs
	Resources ResourceOptions
	// Sysctls are the defaults for pods that do not set them (defaultPodSysctls).
	Sysctls map[string]string
}

// SandboxConfig builds the configuration that the runtime creates a pod's sandbox from. It is a
// pure function. A *StartError means that the spec asks for something that cannot be had.
func SandboxConfig(pod *v1.Pod, o SandboxOptions) (*runtimeapi.PodSandboxConfig, error) {
	out := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID), Attempt: o.Attempt,
		},
		LogDirectory: PodLogDir(o.LogsDir, pod),
		DnsConfig:    o.DNS,
		PortMappings: portMappings(pod),
		Labels:       podLabels(pod),
		Annotations:  maps.Clone(pod.Annotations),
		Linux:        linuxSandbox(pod, o),
	}
	if !pod.Spec.HostNetwork {
		name, domain, err := Hostname(pod, o.ClusterDomain)
		if err != nil {
			return nil, sandboxError(err)
		}
		out.Hostname = name
		if ptr.Deref(pod.Spec.SetHostnameAsFQDN, false) && domain != "" {
			out.Hostname = name + "." + domain
			if len(out.Hostname) > maxFQDN {
				return nil, sandboxError(fmt.Errorf("failed to construct FQDN from pod hostname "+
					"and cluster domain, FQDN %s is too long (%d characters is the max, %d "+
					"characters requested)", out.Hostname, maxFQDN, len(out.Hostname)))
			}
		}
	}
	return out, nil
}

// Hostname returns the pod's host name and, for a pod with a subdomain, the rest of its FQDN.
func Hostname(pod *v1.Pod, clusterDomain string) (name, domain string, err error) {
	if override := pod.Spec.HostnameOverride; override != nil {
		if len(*override) > maxFQDN {
			return "", "", fmt.Errorf("spec.hostnameOverride %s has more than %d characters",
				*override, maxFQDN)
		}
		return *override, "", nil
	}
	if name = pod.Spec.Hostname; name == "" {
		name = pod.Name
		if len(name) > maxHostname {
			name = strings.TrimRight(name[:maxHostname], "-.")
		}
	}
	if name == "" {
		return "", "", fmt.Errorf("pod %s/%s: no host name follows from the pod's name; "+
			"set spec.hostname", pod.Namespace, pod.Name)
	}
	if pod.Spec.Subdomain != "" {
		domain = pod.Spec.Subdomain + "." + pod.Namespace + ".svc." + clusterDomain
	}
	return name, domain, nil
}

func podLabels(pod *v1.Pod) map[string]string {
	labels := make(map[string]string, len(pod.Labels)+3)
	maps.Copy(labels, pod.Labels)
	labels[LabelPodName] = pod.Name
	labels[LabelPodNamespace] = pod.Namespace
	labels[LabelPodUID] = string(pod.UID)
	return labels
}

// portMappings returns the ports of regular and sidecar containers. The runtime gets those of pods
// in the host's network too, although it maps none of them.
func portMappings(pod *v1.Pod) []*runtimeapi.PortMapping {
	var out []*runtimeapi.PortMapping
	for container, kind := range podspec.Containers(pod) {
		if kind == podspec.Init {
			continue
		}
		for _, port := range container.Ports {
			out = append(out, &runtimeapi.PortMapping{
				// CRI names protocols as pods do; TCP is its zero value.
				Protocol:      runtimeapi.Protocol(runtimeapi.Protocol_value[string(port.Protocol)]),
				ContainerPort: port.ContainerPort,
				HostPort:      port.HostPort,
				HostIp:        port.HostIP,
			})
		}
	}
	return out
}

func linuxSandbox(pod *v1.Pod, o SandboxOptions) *runtimeapi.LinuxPodSandboxConfig {
	shared := ptr.Deref(pod.Spec.SecurityContext, v1.PodSecurityContext{})
	out := &runtimeapi.LinuxPodSandboxConfig{
		CgroupParent: o.CgroupParent,
		Resources:    podDemand(pod).linux(o.Resources),
		SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions:         namespaces(pod, o.IDs),
			SelinuxOptions:           selinux(shared.SELinuxOptions),
			RunAsUser:                int64Value(shared.RunAsUser),
			RunAsGroup:               int64Value(shared.RunAsGroup),
			SupplementalGroups:       groups(shared, o.ExtraGroups),
			SupplementalGroupsPolicy: groupsPolicy(shared),
			Privileged:               privileged(pod),
			// The sandbox itself needs nothing unusual, whatever profiles the containers use.
			Seccomp: profile(runtimeapi.SecurityProfile_RuntimeDefault),
		},
	}
	out.Overhead = &runtimeapi.LinuxContainerResources{}
	if len(pod.Spec.Overhead) > 0 {
		out.Overhead = demand{pod.Spec.Overhead, pod.Spec.Overhead}.linux(o.Resources)
	}
	out.Sysctls = sysctls(pod, shared.Sysctls, o.Sysctls)
	return out
}

// sysctls returns the pod's own sysctls, and the defaults of namespaces that it does not share with
// the host. Some defaults are written as paths below /proc/sys.
func sysctls(pod *v1.Pod, own []v1.Sysctl, defaults map[string]string) map[string]string {
	if len(own)+len(defaults) == 0 {
		return nil
	}
	out := map[string]string{}
	for name, value := range defaults {
		shared := true
		switch namespace, _, _ := sysctl.GetNamespace(name); namespace {
		case sysctl.IPCNamespace:
			shared = pod.Spec.HostIPC
		case sysctl.NetNamespace, sysctl.UTSNamespace:
			shared = pod.Spec.HostNetwork
		case sysctl.UserNamespace:
			shared = !OwnUsers(pod)
		}
		if !shared {
			out[sysctl.NormalizeName(name)] = value
		}
	}
	for _, one := range own {
		out[sysctl.NormalizeName(one.Name)] = one.Value
	}
	return out
}

func namespaces(pod *v1.Pod, ids *IDs) *runtimeapi.NamespaceOption {
	out := &runtimeapi.NamespaceOption{
		Network:       runtimeapi.NamespaceMode_POD,
		Ipc:           runtimeapi.NamespaceMode_POD,
		Pid:           runtimeapi.NamespaceMode_CONTAINER,
		UsernsOptions: ids.options(),
	}
	if pod.Spec.HostNetwork {
		out.Network = runtimeapi.NamespaceMode_NODE
	}
	if pod.Spec.HostIPC {
		out.Ipc = runtimeapi.NamespaceMode_NODE
	}
	switch {
	case pod.Spec.HostPID:
		out.Pid = runtimeapi.NamespaceMode_NODE
	case ptr.Deref(pod.Spec.ShareProcessNamespace, false):
		out.Pid = runtimeapi.NamespaceMode_POD
	}
	return out
}

// privileged reports whether any container is privileged: the sandbox must allow it too.
func privileged(pod *v1.Pod) bool {
	for container := range podspec.Containers(pod) {
		if own, _ := securityContexts(pod, container); ptr.Deref(own.Privileged, false) {
			return true
		}
	}
	return false
}
