package config

// fieldFlag is a flag that sets one field of the KubeletConfiguration.
type fieldFlag struct{ flag, path, usage string }

// fieldFlags are the kubelet's flags with the fields of the same meaning. Logging has its own.
func fieldFlags() []fieldFlag {
	var all []fieldFlag
	for _, rows := range [][]fieldFlag{
		serverFlags(), authFlags(), podFlags(), imageFlags(), resourceFlags(), managerFlags(),
		evictionFlags(), nodeFlags(),
	} {
		all = append(all, rows...)
	}
	return all
}

func serverFlags() []fieldFlag {
	return []fieldFlag{
		{"address", "address", "address to serve on"},
		{"port", "port", "port of the HTTPS API"},
		{"read-only-port", "readOnlyPort", "port served without authentication; 0: none"},
		{"enable-server", "enableServer", "serve the HTTPS API"},
		{"enable-debugging-handlers", "enableDebuggingHandlers", "serve exec, logs and the like"},
		{"contention-profiling", "enableContentionProfiling", "record lock contention profiles"},
		{"healthz-port", "healthzPort", "port of /healthz; 0: none"},
		{"healthz-bind-address", "healthzBindAddress", "address of /healthz"},
		{"streaming-connection-idle-timeout", "streamingConnectionIdleTimeout",
			"close idle exec, attach and port-forward connections after this time; 0: never"},
		{"tls-cert-file", "tlsCertFile", "certificate of the HTTPS API"},
		{"tls-private-key-file", "tlsPrivateKeyFile", "key of the certificate"},
		{"tls-cipher-suites", "tlsCipherSuites", "cipher suites to accept; empty: Go's choice"},
		{"tls-min-version", "tlsMinVersion", "lowest TLS version to accept, such as VersionTLS12"},
		{"rotate-certificates", "rotateCertificates", "renew the client certificate in time"},
		{"rotate-server-certificates", "serverTLSBootstrap",
			"ask the API server for the serving certificate and renew it in time"},
	}
}

func authFlags() []fieldFlag {
	return []fieldFlag{
		{"anonymous-auth", "authentication.anonymous.enabled", "let anonymous requests in"},
		{"authentication-token-webhook", "authentication.webhook.enabled",
			"check bearer tokens with the API server"},
		{"authentication-token-webhook-cache-ttl", "authentication.webhook.cacheTTL",
			"how long a token check counts"},
		{"client-ca-file", "authentication.x509.clientCAFile",
			"accept client certificates signed by these authorities"},
		{"authorization-mode", "authorization.mode", "AlwaysAllow or Webhook"},
		{"authorization-webhook-cache-authorized-ttl", "authorization.webhook.cacheAuthorizedTTL",
			"how long an allowing answer counts"},
		{"authorization-webhook-cache-unauthorized-ttl",
			"authorization.webhook.cacheUnauthorizedTTL", "how long a denying answer counts"},
	}
}

func podFlags() []fieldFlag {
	return []fieldFlag{
		{"pod-manifest-path", "staticPodPath", "file or directory of static pods"},
		{"manifest-url", "staticPodURL", "URL of static pods"},
		{"manifest-url-header", "staticPodURLHeader",
			"headers for the URL, name:value with commas; may be repeated"},
		{"file-check-frequency", "fileCheckFrequency", "time between two looks at the manifests"},
		{"http-check-frequency", "httpCheckFrequency", "time between two requests to the URL"},
		{"sync-frequency", "syncFrequency", "longest time between two checks of a running pod"},
		{"max-pods", "maxPods", "pods that may run at once"},
		{"pods-per-core", "podsPerCore", "pods per core, at most max-pods; 0: no limit"},
		{"pod-max-pids", "podPidsLimit", "processes per pod; -1: no limit"},
		{"pod-cidr", "podCIDR", "pod addresses, standalone only"},
		{"resolv-conf", "resolvConf", "resolver file that pods' DNS settings come from"},
		{"cluster-dns", "clusterDNS", "addresses of the cluster's DNS servers"},
		{"cluster-domain", "clusterDomain", "domain of the cluster"},
		{"allowed-unsafe-sysctls", "allowedUnsafeSysctls",
			"sysctls that pods may set, * at the end"},
		{"seccomp-default", "seccompDefault", "use RuntimeDefault where a pod names no profile"},
		{"runonce", "runOnce", "not supported: must be false"},
		{"hairpin-mode", "hairpinMode", "promiscuous-bridge, hairpin-veth or none"},
	}
}

func imageFlags() []fieldFlag {
	return []fieldFlag{
		{"container-runtime-endpoint", "containerRuntimeEndpoint",
			"socket of the runtime (CRI v1)"},
		{"image-service-endpoint", "imageServiceEndpoint", "socket for images; empty: the same"},
		{"runtime-request-timeout", "runtimeRequestTimeout", "limit of a request to the runtime"},
		{"serialize-image-pulls", "serializeImagePulls", "pull one image at a time"},
		{"registry-qps", "registryPullQPS", "image pulls per second; 0: no limit"},
		{"registry-burst", "registryBurst", "image pulls that may come at once"},
		{"image-gc-high-threshold", "imageGCHighThresholdPercent",
			"remove images when the disk is this full, in percent; 100: never"},
		{"image-gc-low-threshold", "imageGCLowThresholdPercent",
			"remove images down to this, in percent"},
		{"minimum-image-ttl-duration", "imageMinimumGCAge", "age from which images may be removed"},
		{"container-log-max-size", "containerLogMaxSize", "size at which a log file is rotated"},
		{"container-log-max-files", "containerLogMaxFiles", "log files to keep per container"},
	}
}

func resourceFlags() []fieldFlag {
	return []fieldFlag{
		{"cgroup-driver", "cgroupDriver", "cgroupfs or systemd, when the runtime does not tell"},
		{"cgroup-root", "cgroupRoot", "cgroup below which pods run"},
		{"cgroups-per-qos", "cgroupsPerQOS", "group pods by quality of service"},
		{"kubelet-cgroups", "kubeletCgroups", "cgroup to run the agent in"},
		{"system-cgroups", "systemCgroups", "cgroup to move other processes to"},
		{"cpu-cfs-quota", "cpuCFSQuota", "enforce CPU limits with quotas"},
		{"cpu-cfs-quota-period", "cpuCFSQuotaPeriod", "period of the quotas, 1ms to 1s"},
		{"kube-reserved", "kubeReserved", "resources for Kubernetes daemons, cpu=200m,memory=1Gi"},
		{"kube-reserved-cgroup", "kubeReservedCgroup", "cgroup of these daemons"},
		{"system-reserved", "systemReserved", "resources for other daemons, cpu=200m,memory=1Gi"},
		{"system-reserved-cgroup", "systemReservedCgroup", "cgroup of these daemons"},
		{"reserved-cpus", "reservedSystemCPUs", "CPUs no pod gets exclusively, such as 0-1,8"},
		{"enforce-node-allocatable", "enforceNodeAllocatable",
			"what to enforce: pods, system-reserved, kube-reserved, ...-compressible, or none"},
		{"qos-reserved", "qosReserved", "memory=percent of requests to keep from lower classes"},
		{"local-storage-capacity-isolation", "localStorageCapacityIsolation",
			"account for local ephemeral storage"},
		{"oom-score-adj", "oomScoreAdj", "OOM score adjustment of the agent, -1000 to 1000"},
		{"max-open-files", "maxOpenFiles", "files that the agent may have open"},
		{"fail-swap-on", "failSwapOn", "refuse to start when swap is on"},
		{"fail-cgroupv1", "failCgroupV1", "refuse to start on a host with cgroup v1"},
		{"protect-kernel-defaults", "protectKernelDefaults",
			"fail on kernel settings that differ instead of changing them"},
		{"kernel-memcg-notification", "kernelMemcgNotification",
			"get memory events from the kernel"},
	}
}

func managerFlags() []fieldFlag {
	return []fieldFlag{
		{"cpu-manager-policy", "cpuManagerPolicy", "none or static"},
		{"cpu-manager-policy-options", "cpuManagerPolicyOptions", "options, name=true with commas"},
		{"cpu-manager-reconcile-period", "cpuManagerReconcilePeriod",
			"time between two checks of the containers' CPUs"},
		{"memory-manager-policy", "memoryManagerPolicy", "None or Static"},
		{"reserved-memory", "reservedMemory", "memory no pod gets, 0:memory=1Gi,hugepages-2Mi=4Mi"},
		{"topology-manager-policy", "topologyManagerPolicy",
			"none, best-effort, restricted or single-numa-node"},
		{"topology-manager-scope", "topologyManagerScope", "container or pod"},
		{"topology-manager-policy-options", "topologyManagerPolicyOptions",
			"options, name=value with commas"},
	}
}

func evictionFlags() []fieldFlag {
	return []fieldFlag{
		{"eviction-hard", "evictionHard", "evict at once below, memory.available<1Gi,..."},
		{"eviction-soft", "evictionSoft", "evict after a time below, memory.available<2Gi,..."},
		{"eviction-soft-grace-period", "evictionSoftGracePeriod", "these times, signal=30s"},
		{"eviction-max-pod-grace-period", "evictionMaxPodGracePeriod",
			"longest grace period of a pod in a soft eviction, in seconds"},
		{"eviction-minimum-reclaim", "evictionMinimumReclaim", "least to free, signal=quantity"},
		{"eviction-pressure-transition-period", "evictionPressureTransitionPeriod",
			"how long a pressure must be over before it is reported so"},
	}
}

func nodeFlags() []fieldFlag {
	return []fieldFlag{
		{"feature-gates", "featureGates", "features to switch, Name=true with commas"},
		{"register-node", "registerNode", "create the node object"},
		{"register-with-taints", "registerWithTaints", "taints of a new node, key=value:Effect"},
		{"provider-id", "providerID", "the cloud provider's name of this machine"},
		{"node-status-update-frequency", "nodeStatusUpdateFrequency", "time between two readings"},
		{"node-status-max-images", "nodeStatusMaxImages", "images in the status; -1: all"},
		{"event-qps", "eventRecordQPS", "events per second; 0: no limit"},
		{"event-burst", "eventBurst", "events that may come at once"},
		{"kube-api-qps", "kubeAPIQPS", "requests to the API server per second"},
		{"kube-api-burst", "kubeAPIBurst", "requests that may come at once"},
		{"kube-api-content-type", "contentType", "media type of these requests"},
		{"enable-controller-attach-detach", "enableControllerAttachDetach",
			"leave attaching of volumes to the controller"},
		{"make-iptables-util-chains", "makeIPTablesUtilChains",
			"keep the kubelet's iptables chains"},
		{"volume-plugin-dir", "volumePluginDir", "directory of flexvolume plugins"},
		{"volume-stats-agg-period", "volumeStatsAggPeriod", "time between two volume measurements"},
	}
}
