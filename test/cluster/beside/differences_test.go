package beside

// The tables have the intended differences that clients see, with reasons.
// docs/stats-and-metrics.md lists those of metrics and statistics.

var statusDifferences = []difference{
	{where: `\w+\.resources(\.limits\.memory)?`, sometimes: true,
		why: "on cgroup v1 the kubelet tells of a pod without a limit what the kernel has there"},
	{where: `noprogram\.containerStatuses\[main\]\.state\.terminated\.startedAt`,
		why: "what never started has no time, and not 1970"},
	{where: `nosecret\.containerStatuses\[main\]\.state\.waiting\.message`,
		why: "which variable needs the secret is told too"},
	{where: `novolume\.(message|reason|containerStatuses\[main\]\.state\.waiting\.message)`,
		why: "what a pod waits for is in its status too"},
	{where: `crashes\.containerStatuses\[main\]\.(restartCount|state\.waiting\.message)`,
		sometimes: true, why: "it may have been started once more when it is looked at"},
}

var nodeDifferences = []difference{
	{where: `\.daemonEndpoints\.kubeletEndpoint\.Port`, why: "each node here has its own"},
	{where: `\.nodeInfo\.kubeletVersion`, why: "it says that it is numalet"},
	{where: `\.(capacity|allocatable)\.ephemeral-storage`, sometimes: true,
		why: "the same amount is written another way, and what is free changes"},
}

var eventDifferences = []difference{
	{where: `Node NODE  Warning (InvalidDiskCapacity|ImageGCFailed|FreeDiskSpaceFailed): .*`,
		sometimes: true, why: "when images are collected, and how full the disk is"},
	{where: `Node NODE  Warning CgroupV1: .*`, why: "other words"},
	{where: `Pod nosecret spec.containers\{main\} Warning Failed: .*`,
		why: "which variable needs the secret is told too"},
	{where: `Pod \w+  Warning FailedMount: .*(not registered|timed out waiting for the condition)`,
		sometimes: true, why: "the kubelet begins before it knows the object, and tries again"},
	{where: `Pod toolarge  Warning OutOfcpu: .*`, why: "what would fit is told too"},
	{where: `Node NODE  Normal Node(NotReady|HasNoDiskPressure|HasSufficient\w+): .*`,
		sometimes: true, why: "whether the node was ready at once when the agent began again"},
}

var metricDifferences = []difference{
	{where: `/metrics (aggregator_discovery_aggregation_count_total|apiserver_(envelope_encryption_` +
		`dek_cache_fill_percent|storage_data_key_generation_(duration_seconds|failures_total)|` +
		`storage_envelope_transformation_cache_misses_total))`,
		why: "of an API server's parts, which the kubelet links and does not use"},
	{where: `/metrics (numalet_.*|kubelet_cpu_manager_allocation_per_numa|kubelet_metrics_provider)`,
		why: "numalet's own, and two of the kubelet's that it has under other settings"},
	{where: `/metrics kubelet_pod_level_resources_admission.*`,
		why: "of what is not there yet"},
	{where: `/metrics kubelet_orphan_pod_.*`,
		why: "a pod that nobody desires ends as all others"},
	{where: `/metrics volume_manager_total_volumes`, sometimes: true, why: "measured each minute"},
	{where: `/metrics kubelet_imagemanager_inmemory_.*`,
		why: "all records are in memory: there is no cache that could be full"},
	{where: `/metrics kubelet_imagemanager_image_mustpull_checks_total`, sometimes: true,
		why: "what had happened by then"},
	{where: `/metrics kubelet_pleg_discard_events`, why: "nothing is discarded"},
	{where: `/metrics dra_operations_duration_seconds`,
		why: "pods with claims are counted; the kubelet counts those without, too"},
	{where: `/metrics kubelet_(started_containers_errors_total|admission_rejections_total|` +
		`http_.*|runtime_operations_errors_total|run_podsandbox_.*)`, sometimes: true,
		why: "what had happened by then"},
	{where: `/metrics/cadvisor (cadvisor_version_info|container_health_state|` +
		`container_creation_time_seconds|container_ulimits_soft|machine_(nvm_.*|cpu_books|` +
		`cpu_drawers))`, why: "cAdvisor's own, or of hardware that no node has"},
	{where: `/metrics/cadvisor container_(fs_.*|cpu_cfs_burst_.*|memory_(events|file|pg|` +
		`workingset)_?.*|spec_cpu_quota|spec_memory_reservation_limit_bytes|pressure_.*)`,
		sometimes: true, why: "as far as the runtime has them; pressure where the kernel has it"},
	{where: `/metrics/resource \w+_swap_\w+_bytes`, sometimes: true,
		why: "on cgroup v1 the runtime tells nothing of swap"},
}

var summaryDifferences = []difference{
	{where: `\.(node\.systemContainers\[(pods)?\]|pods\[\](\.containers\[\])?)\.(\w+\.psi\..*|` +
		`io\.time|swap\..*)`, sometimes: true,
		why: "pressure and swap as far as the runtime tells them: on cgroup v1 not"},
	{where: `\.node\.(systemContainers\[(pods)?\]\.)?cpu\.usageNanoCores`, sometimes: true,
		why: "the mean since the last reading, and there was none"},
	{where: `\.node\.systemContainers\[\]\..*`, sometimes: true,
		why: "the agent itself, which cAdvisor finds where it has a cgroup of its own"},
	{where: `\.pods\[\]\.(network|process_stats|volume\[\])\..*`, sometimes: true,
		why: "what was measured by then"},
}

// docs/node-api.md lists those of answers.
var answerDifferences = []difference{
	{where: `GET /configz \.kubeletconfig\.(containerRuntimeEndpoint|podLogsDir|port|readOnlyPort|` +
		`staticPodPath|tlsCertFile|tlsPrivateKeyFile)`, why: "each node here has its own"},
	{where: `GET /configz \.kubeletconfig\.userNamespaces\.idsPerPod`,
		why: "defaults that are in force are told too"},
	{where: `HEAD /(pods/?|runningpods/|stats/summary/?|logs/|debug/pprof/|exec/|attach/|portForward/|` +
		`containerLogs/).*`, why: "HEAD is answered wherever GET is"},
	{where: `(POST|PUT|DELETE|OPTIONS) /(configz(\?.*)?|healthz(/ping)?|metrics|flagz|statusz)`,
		why: "a method that means nothing there is refused"},
	{where: `\w+ /debug/flags/v`, why: "405 is what HTTP has for a method that is not served"},
	{where: `\w+ /debug/pprof/`, why: "the index of the profiles is there"},
	{where: `\w+ /stats`, why: "it leads to /stats/, where nothing is"},
	{where: `GET /logs/\?query=kubelet`, why: "that queries are switched off is told"},
	{where: `GET /logs/FOLDER/outside`, why: "no link leads out of the folder"},
}
