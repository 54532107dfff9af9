package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/cpuset"
)

func invalid(at string, value any, format string, args ...any) *field.Error {
	return field.Invalid(path(at), value, fmt.Sprintf(format, args...))
}

func forbidden(at, why string) *field.Error { return field.Forbidden(path(at), why) }

func validateNode(c *Config) field.ErrorList {
	k := &c.Kubelet
	var errs field.ErrorList
	for i, taint := range k.RegisterWithTaints {
		at := field.NewPath("registerWithTaints").Index(i)
		for _, problem := range validation.IsQualifiedName(taint.Key) {
			errs = append(errs, field.Invalid(at.Child("key"), taint.Key, problem))
		}
		for _, problem := range validation.IsValidLabelValue(taint.Value) {
			errs = append(errs, field.Invalid(at.Child("value"), taint.Value, problem))
		}
		effects := []v1.TaintEffect{
			v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute}
		if !slices.Contains(effects, taint.Effect) {
			errs = append(errs, field.NotSupported(at.Child("effect"), taint.Effect, effects))
		}
		if taint.TimeAdded != nil {
			errs = append(errs, field.Forbidden(at.Child("timeAdded"), "is set by the cluster"))
		}
	}
	if n := *k.UserNamespaces.IDsPerPod; n < 65536 || n%65536 != 0 || n > 1<<32-1 {
		errs = append(errs, invalid("userNamespaces.idsPerPod", n,
			"must be a multiple of 65536 and below 2^32"))
	}
	if k.SystemCgroups != "" && k.CgroupRoot == "" {
		errs = append(errs, forbidden("systemCgroups", "needs cgroupRoot"))
	}
	return errs
}

// validateAllocatable checks enforceNodeAllocatable and what it needs.
func validateAllocatable(c *Config) field.ErrorList {
	k := &c.Kubelet
	at := field.NewPath("enforceNodeAllocatable")
	known := []string{"pods", "system-reserved", "kube-reserved",
		"system-reserved-compressible", "kube-reserved-compressible", "none"}
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, what := range k.EnforceNodeAllocatable {
		var why string
		switch {
		case !slices.Contains(known, what):
			errs = append(errs, field.NotSupported(at.Index(i), what, known))
		case seen[what]:
			errs = append(errs, field.Duplicate(at.Index(i), what))
		case what == "none" && len(k.EnforceNodeAllocatable) > 1:
			why = "none must stand alone"
		case what != "none" && !*k.CgroupsPerQOS:
			why = "needs cgroupsPerQOS true; give [none] instead"
		case strings.HasPrefix(what, "system-reserved") && k.SystemReservedCgroup == "":
			why = "needs systemReservedCgroup"
		case strings.HasPrefix(what, "kube-reserved") && k.KubeReservedCgroup == "":
			why = "needs kubeReservedCgroup"
		case seen[strings.TrimSuffix(what, "-compressible")] || seen[what+"-compressible"]:
			why = "excludes its other form; keep one of the two"
		}
		if why != "" {
			errs = append(errs, field.Invalid(at.Index(i), what, why))
		}
		seen[what] = true
	}
	return errs
}

func validateReserved(c *Config) field.ErrorList {
	k := &c.Kubelet
	var errs field.ErrorList
	if _, err := ParseReserved(k.KubeReserved); err != nil {
		errs = append(errs, invalid("kubeReserved", k.KubeReserved, "%s", err))
	}
	if _, err := ParseReserved(k.SystemReserved); err != nil {
		errs = append(errs, invalid("systemReserved", k.SystemReserved, "%s", err))
	}
	if k.ReservedSystemCPUs == "" {
		return errs
	}
	if _, err := cpuset.Parse(k.ReservedSystemCPUs); err != nil {
		errs = append(errs, invalid("reservedSystemCPUs", k.ReservedSystemCPUs,
			`must be a list of CPUs such as "0-1,8"`))
	}
	if k.SystemReservedCgroup != "" || k.KubeReservedCgroup != "" {
		errs = append(errs, invalid("reservedSystemCPUs", k.ReservedSystemCPUs,
			"cannot be used with systemReservedCgroup or kubeReservedCgroup"))
	}
	return errs
}

func validateEviction(c *Config) field.ErrorList {
	k := &c.Kubelet
	var errs field.ErrorList
	thresholds := map[string]map[string]string{"evictionHard": k.EvictionHard,
		"evictionSoft": k.EvictionSoft, "evictionMinimumReclaim": k.EvictionMinimumReclaim}
	for name, values := range thresholds {
		for signal, value := range values {
			at := field.NewPath(name).Key(signal)
			errs = append(errs, validateSignal(at, signal)...)
			if _, _, err := ParseThreshold(value); err != nil {
				errs = append(errs, field.Invalid(at, value, err.Error()))
			}
		}
	}
	grace := field.NewPath("evictionSoftGracePeriod")
	for signal, value := range k.EvictionSoftGracePeriod {
		errs = append(errs, validateSignal(grace.Key(signal), signal)...)
		if d, err := time.ParseDuration(value); err != nil || d < 0 {
			errs = append(errs, field.Invalid(grace.Key(signal), value,
				`must be a duration such as "30s"`))
		}
	}
	for signal := range k.EvictionSoft {
		if _, ok := k.EvictionSoftGracePeriod[signal]; !ok {
			errs = append(errs, field.Required(grace.Key(signal),
				"evictionSoft needs a grace period for each signal"))
		}
	}
	return errs
}

func validateSignal(at *field.Path, signal string) field.ErrorList {
	known := []string{"memory.available", "nodefs.available", "nodefs.inodesFree",
		"imagefs.available", "imagefs.inodesFree", "pid.available",
		"allocatableMemory.available"}
	switch {
	case slices.Contains(known, signal):
		return nil
	case strings.HasPrefix(signal, "containerfs."):
		return field.ErrorList{field.Forbidden(at, "follows nodefs or imagefs; remove it")}
	default:
		return field.ErrorList{field.NotSupported(at, signal, known)}
	}
}

func validateShutdown(c *Config) field.ErrorList {
	k := &c.Kubelet
	var errs field.ErrorList
	total, critical := k.ShutdownGracePeriod.Duration, k.ShutdownGracePeriodCriticalPods.Duration
	for at, d := range map[string]time.Duration{
		"shutdownGracePeriod": total, "shutdownGracePeriodCriticalPods": critical,
	} {
		if d != 0 && d < time.Second {
			errs = append(errs, invalid(at, d.String(), "must be 0 or at least 1s"))
		}
	}
	if critical > total {
		errs = append(errs, invalid("shutdownGracePeriodCriticalPods", critical.String(),
			"must not be more than shutdownGracePeriod, %s", total))
	}
	if len(k.ShutdownGracePeriodByPodPriority) > 0 && (total != 0 || critical != 0) {
		errs = append(errs, forbidden("shutdownGracePeriodByPodPriority",
			"cannot be used with shutdownGracePeriod or shutdownGracePeriodCriticalPods"))
	}
	for i, p := range k.ShutdownGracePeriodByPodPriority {
		if p.ShutdownGracePeriodSeconds < 0 {
			at := field.NewPath("shutdownGracePeriodByPodPriority").Index(i)
			errs = append(errs, field.Invalid(at.Child("shutdownGracePeriodSeconds"),
				p.ShutdownGracePeriodSeconds, "must not be negative"))
		}
	}
	return errs
}

// validateSysctls checks defaultPodSysctls: kernel settings of the pod's own namespaces only.
func validateSysctls(c *Config) field.ErrorList {
	if len(c.Kubelet.DefaultPodSysctls) > 0 && !c.Gates.Enabled("DefaultPodSysctls") {
		return field.ErrorList{forbidden("defaultPodSysctls",
			"needs feature gate DefaultPodSysctls")}
	}
	var errs field.ErrorList
	seen := map[string]bool{}
	for name := range c.Kubelet.DefaultPodSysctls {
		at := field.NewPath("defaultPodSysctls").Key(name)
		dotted := strings.ReplaceAll(name, "/", ".")
		namespaced := slices.ContainsFunc(
			[]string{"kernel.sem", "kernel.shm", "kernel.msg", "fs.mqueue.", "net."},
			func(prefix string) bool { return strings.HasPrefix(dotted, prefix) })
		if !namespaced {
			errs = append(errs, field.Invalid(at, name, "must belong to a namespace of the pod"))
		}
		if seen[dotted] {
			errs = append(errs, field.Duplicate(at, name))
		}
		seen[dotted] = true
	}
	return errs
}
