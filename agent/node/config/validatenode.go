package config

import (
	"fmt"
	"path"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/component-helpers/node/util/sysctl"

	"github.com/numalet/numalet/topology"
)

func validateNode(c *Config, p *problems) {
	k := &c.Kubelet
	for i, taint := range k.RegisterWithTaints {
		at := fmt.Sprintf("registerWithTaints[%d]", i)
		for _, problem := range validation.IsQualifiedName(taint.Key) {
			p.invalid(at+".key", taint.Key, "%s", problem)
		}
		for _, problem := range validation.IsValidLabelValue(taint.Value) {
			p.invalid(at+".value", taint.Value, "%s", problem)
		}
		p.choose(at+".effect", string(taint.Effect), "NoSchedule", "PreferNoSchedule", "NoExecute")
		p.forbid(taint.TimeAdded != nil, at+".timeAdded", "is set by the cluster")
	}
	if n := *k.UserNamespaces.IDsPerPod; n < 65536 || n%65536 != 0 || n > 1<<32-1 {
		p.invalid("userNamespaces.idsPerPod", n, "must be a multiple of 65536 and below 2^32")
	}
	p.forbid(k.SystemCgroups != "" && k.CgroupRoot == "", "systemCgroups", "needs cgroupRoot")
	for at, name := range map[string]string{"systemCgroups": k.SystemCgroups,
		"kubeletCgroups": k.KubeletCgroups, "--runtime-cgroups": c.RuntimeCgroups} {
		if name != "" && (path.Clean("/"+name) == "/" || strings.Contains(name, "..")) {
			p.invalid(at, name, "must be a cgroup below /, such as /system")
		}
	}
}

// validateAllocatable checks enforceNodeAllocatable and the settings it requires.
func validateAllocatable(c *Config, p *problems) {
	k := &c.Kubelet
	seen := map[string]bool{}
	for i, what := range k.EnforceNodeAllocatable {
		at := fmt.Sprintf("enforceNodeAllocatable[%d]", i)
		known := p.choose(at, what, "pods", "system-reserved", "kube-reserved",
			"system-reserved-compressible", "kube-reserved-compressible", "none")
		switch {
		case !known:
		case seen[what]:
			p.duplicate(at, what)
		case what == "none" && len(k.EnforceNodeAllocatable) > 1:
			p.invalid(at, what, "none must stand alone")
		case what != "none" && !*k.CgroupsPerQOS:
			p.invalid(at, what, "needs cgroupsPerQOS true; give [none] instead")
		case strings.HasPrefix(what, "system-reserved") && k.SystemReservedCgroup == "":
			p.invalid(at, what, "needs systemReservedCgroup")
		case strings.HasPrefix(what, "kube-reserved") && k.KubeReservedCgroup == "":
			p.invalid(at, what, "needs kubeReservedCgroup")
		case seen[strings.TrimSuffix(what, "-compressible")] || seen[what+"-compressible"]:
			p.invalid(at, what, "excludes its other form; keep one of the two")
		}
		seen[what] = true
	}
}

func validateReserved(c *Config, p *problems) {
	k := &c.Kubelet
	for at, reserved := range map[string]map[string]string{
		"kubeReserved": k.KubeReserved, "systemReserved": k.SystemReserved,
	} {
		if _, err := ParseReserved(reserved); err != nil {
			p.invalid(at, reserved, "%s", err)
		}
	}
	if _, err := ParseQOSReserved(k.QOSReserved); err != nil {
		p.invalid("qosReserved", k.QOSReserved, "%s", err)
	}
	if k.ReservedSystemCPUs == "" {
		return
	}
	if _, err := topology.ParseCPUs(k.ReservedSystemCPUs); err != nil {
		p.invalid("reservedSystemCPUs", k.ReservedSystemCPUs,
			`must be a list of CPUs such as "0-1,8"`)
	}
	if k.SystemReservedCgroup != "" || k.KubeReservedCgroup != "" {
		p.invalid("reservedSystemCPUs", k.ReservedSystemCPUs,
			"cannot be used with systemReservedCgroup or kubeReservedCgroup")
	}
}

func validateEviction(c *Config, p *problems) {
	k := &c.Kubelet
	for name, values := range map[string]map[string]string{
		"evictionHard": k.EvictionHard, "evictionSoft": k.EvictionSoft,
		"evictionMinimumReclaim": k.EvictionMinimumReclaim,
	} {
		for signal, value := range values {
			at := validateSignal(p, name, signal)
			least, percent := name == "evictionMinimumReclaim", strings.HasSuffix(value, "%")
			switch t, _, err := ParseThreshold(value); {
			case err != nil:
				p.invalid(at, value, "%s", err)
			case least && percent && t.Part == 0:
				p.invalid(at, value, "must be positive; leave it out")
			case !least && !percent && t.Quantity.IsZero():
				p.invalid(at, value, `must be positive; "0%%" turns the signal off`)
			}
		}
	}
	const grace = "evictionSoftGracePeriod"
	for signal, value := range k.EvictionSoftGracePeriod {
		at := validateSignal(p, grace, signal)
		if d, err := time.ParseDuration(value); err != nil || d < 0 {
			p.invalid(at, value, `must be a duration such as "30s"`)
		}
	}
	for signal := range k.EvictionSoft {
		if _, ok := k.EvictionSoftGracePeriod[signal]; !ok {
			p.required(keyed(grace, signal), "evictionSoft needs a grace period for each signal")
		}
	}
}

// keyed returns the path of an entry of a map.
func keyed(field, key string) string { return field + "[" + key + "]" }

// IsDerived reports whether a signal has the thresholds of others, those of nodefs or imagefs. As for the
// kubelet, what the configuration says of it has no effect.
func IsDerived(signal string) bool {
	return signal == "containerfs.available" || signal == "containerfs.inodesFree"
}

// validateSignal checks a signal of the field and returns the path of its value.
func validateSignal(p *problems, field, signal string) (at string) {
	at = keyed(field, signal)
	if !IsDerived(signal) {
		p.choose(at, signal, "memory.available", "nodefs.available", "nodefs.inodesFree",
			"imagefs.available", "imagefs.inodesFree", "pid.available",
			"allocatableMemory.available")
	}
	return at
}

func validateShutdown(c *Config, p *problems) {
	k := &c.Kubelet
	total, critical := k.ShutdownGracePeriod, k.ShutdownGracePeriodCriticalPods
	for at, d := range map[string]time.Duration{
		"shutdownGracePeriod": total.Duration, "shutdownGracePeriodCriticalPods": critical.Duration,
	} {
		if d != 0 && d < time.Second {
			p.invalid(at, d.String(), "must be 0 or at least 1s")
		}
	}
	if critical.Duration > total.Duration {
		p.invalid("shutdownGracePeriodCriticalPods", critical,
			"must not be more than shutdownGracePeriod, %s", total.Duration)
	}
	const byPriority = "shutdownGracePeriodByPodPriority"
	priorities := k.ShutdownGracePeriodByPodPriority
	p.forbid(len(priorities) > 0 && (total.Duration != 0 || critical.Duration != 0), byPriority,
		"cannot be used with shutdownGracePeriod or shutdownGracePeriodCriticalPods")
	p.forbid(total.Duration > 0 && !c.Gates.Enabled("GracefulNodeShutdown"), "shutdownGracePeriod",
		"needs feature gate GracefulNodeShutdown")
	p.forbid(len(priorities) > 0 && !c.Gates.Enabled("GracefulNodeShutdownBasedOnPodPriority"),
		byPriority, "needs feature gate GracefulNodeShutdownBasedOnPodPriority")
	for i, one := range priorities {
		if one.ShutdownGracePeriodSeconds < 0 {
			p.invalid(fmt.Sprintf("%s[%d].shutdownGracePeriodSeconds", byPriority, i),
				one.ShutdownGracePeriodSeconds, "must not be negative")
		}
	}
}

// validateSysctls checks defaultPodSysctls: only sysctls of namespaces of the pod are allowed.
func validateSysctls(c *Config, p *problems) {
	if !c.Gates.Enabled("DefaultPodSysctls") {
		p.forbid(len(c.Kubelet.DefaultPodSysctls) > 0, "defaultPodSysctls",
			"needs feature gate DefaultPodSysctls")
		return
	}
	seen := map[string]bool{}
	for name := range c.Kubelet.DefaultPodSysctls {
		at, dotted := keyed("defaultPodSysctls", name), sysctl.NormalizeName(name)
		if of, _, _ := sysctl.GetNamespace(name); of == sysctl.UnknownNamespace {
			p.invalid(at, name, "must belong to a namespace of the pod")
		}
		if seen[dotted] {
			p.duplicate(at, name)
		}
		seen[dotted] = true
	}
}
