package handlers

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/node/util/sysctl"

	"github.com/numalet/numalet/agent/placement/admission/decide"
)

// ReasonSysctl is the kubelet's reason for a pod that sets a sysctl it may not set.
const ReasonSysctl = "SysctlForbidden"

// safeSysctls are those that any pod may set: the kernel keeps them apart by namespace, and they
// cannot harm other pods
// (https://kubernetes.io/docs/tasks/administer-cluster/sysctl-cluster/).
func safeSysctls() []string {
	return []string{
		"kernel.shm_rmid_forced",
		"net.ipv4.ip_local_port_range", "net.ipv4.ip_local_reserved_ports",
		"net.ipv4.ip_unprivileged_port_start", "net.ipv4.ping_group_range",
		"net.ipv4.tcp_syncookies", "net.ipv4.tcp_fin_timeout",
		"net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_keepalive_intvl",
		"net.ipv4.tcp_keepalive_probes",
		"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem",
		"net.ipv4.tcp_slow_start_after_idle", "net.ipv4.tcp_notsent_lowat",
	}
}

// Sysctls refuses pods that set a sysctl which is neither safe nor in unsafe (allowedUnsafeSysctls:
// names, or prefixes that end in *), or one of a namespace that the pod shares with the host.
func Sysctls(unsafe []string) decide.Handler {
	allowed := append(safeSysctls(), unsafe...)
	return func(a decide.Attempt) *decide.Refusal {
		pod := a.Pod
		if pod.Spec.SecurityContext == nil {
			return nil
		}
		for _, s := range pod.Spec.SecurityContext.Sysctls {
			name := sysctl.NormalizeName(s.Name)
			if why := forbidden(name, allowed, pod); why != "" {
				return &decide.Refusal{
					Reason:  ReasonSysctl,
					Message: fmt.Sprintf("forbidden sysctl: %q %s", name, why),
				}
			}
		}
		return nil
	}
}

// forbidden says why the pod may not set the sysctl; "": it may.
func forbidden(name string, allowed []string, pod *v1.Pod) string {
	listed := false
	for _, pattern := range allowed {
		prefix, wild := strings.CutSuffix(pattern, "*")
		listed = listed || name == pattern || wild && strings.HasPrefix(name, prefix)
	}
	namespace, _, _ := sysctl.GetNamespace(name)
	switch {
	case !listed:
		return "not allowlisted"
	case pod.Spec.HostNetwork && namespace == sysctl.NetNamespace:
		return "not allowed with host net enabled"
	case pod.Spec.HostIPC && namespace == sysctl.IPCNamespace:
		return "not allowed with host ipc enabled"
	}
	return ""
}
