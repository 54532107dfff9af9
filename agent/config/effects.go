package config

import (
	"maps"
	"slices"
	"strings"
)

// effects is the one table of what works: paths of KubeletConfiguration (a parent covers its
// children), feature gates and flags of Options. A note tells which part works; without one all
// of it does. What is not in the table is accepted, checked and reported by Unhonoured.
func effects() map[string]string {
	table := map[string]string{
		"evictionHard": "memory.available lowers node allocatable; nothing is evicted",
	}
	for _, name := range strings.Fields(`
		staticPodPath staticPodURL staticPodURLHeader fileCheckFrequency httpCheckFrequency
		syncFrequency maxOpenFiles maxPods podsPerCore podPidsLimit podLogsDir
		address readOnlyPort healthzPort healthzBindAddress
		containerRuntimeEndpoint imageServiceEndpoint runtimeRequestTimeout
		serializeImagePulls maxParallelImagePulls registryPullQPS registryBurst
		cgroupDriver cgroupRoot cgroupsPerQOS cpuCFSQuota cpuCFSQuotaPeriod
		cpuManagerPolicy cpuManagerPolicyOptions cpuManagerReconcilePeriod
		memoryManagerPolicy reservedMemory
		topologyManagerPolicy topologyManagerPolicyOptions topologyManagerScope
		reservedSystemCPUs kubeReserved systemReserved enforceNodeAllocatable
		seccompDefault allowedUnsafeSysctls resolvConf clusterDNS clusterDomain crashLoopBackOff
		failCgroupV1 failSwapOn singleProcessOOMKill oomScoreAdj registerNode logging
		featureGates.CPUManagerPolicyAlphaOptions featureGates.CPUManagerPolicyBetaOptions
		featureGates.CPUManagerPolicyOptions
		featureGates.ResourceHealthStatus
		featureGates.ContextualLogging featureGates.LoggingAlphaOptions
		featureGates.LoggingBetaOptions
		--config --config-dir --root-dir --hostname-override --node-ip --lock-file
		--exit-on-lock-contention --topology-from --device-admission-wait --version`) {
		table[name] = ""
	}
	for _, d := range new(DevicePlugins).flags() {
		table["--"+d.name] = ""
	}
	return table
}

// unhonoured lists what the files (by their paths) and the flags set without effect.
func unhonoured(c *Config, given []string, flags *Flags) []string {
	table := effects()
	for _, what := range c.Kubelet.EnforceNodeAllocatable {
		if what != "pods" && what != "none" {
			table["enforceNodeAllocatable"] = "pods and none only"
		}
	}
	without := map[string]bool{}
	report := func(name, path string) {
		note, ok := lookup(table, path)
		switch {
		case ok && note != "":
			without[name+" ("+note+")"] = true
		case !ok:
			without[name] = true
		}
	}
	for _, path := range given {
		if path != "featureGates" {
			report(path, path)
		}
	}
	for name := range c.Kubelet.FeatureGates {
		report("featureGates."+name, "featureGates."+name)
	}
	paths := map[string]string{}
	for _, row := range fieldFlags() {
		paths[row.flag] = row.path
	}
	for name := range flags.raw {
		switch path, ok := paths[name]; {
		case name == "feature-gates": // reported one by one
		case ok:
			report("--"+name, path)
		default:
			report("--"+name, "logging")
		}
	}
	for _, name := range flags.options() {
		report("--"+name, "--"+name)
	}
	return slices.Sorted(maps.Keys(without))
}

// lookup finds the entry of path or of its nearest parent.
func lookup(table map[string]string, path string) (note string, ok bool) {
	for {
		if note, ok = table[path]; ok {
			return note, true
		}
		cut := strings.LastIndexByte(path, '.')
		if cut < 0 {
			return "", false
		}
		path = path[:cut]
	}
}
