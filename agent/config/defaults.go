package config

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"
)

// noFileBase are the settings that differ when no configuration file is given: the kubelet's
// defaults from the time of flags. Drop-ins and flags come on top of it.
const noFileBase = `{
	"authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
	"authorization": {"mode": "AlwaysAllow"},
	"readOnlyPort": 10255
}`

// applyDefaults fills every field that is not set. It is idempotent.
func applyDefaults(c *kubeletv1beta1.KubeletConfiguration) {
	c.APIVersion, c.Kind = apiVersion, kind
	defaultServer(c)
	defaultNode(c)
	defaultImages(c)
	defaultCgroups(c)
	defaultEviction(c)
	defaultPods(c)
	logsapi.SetRecommendedLoggingConfiguration(&c.Logging)
}

func defaultServer(c *kubeletv1beta1.KubeletConfiguration) {
	unset(&c.EnableServer, ptr.To(true))
	unset(&c.Address, "0.0.0.0")
	unset(&c.Port, 10250)
	unset(&c.Authentication.Anonymous.Enabled, ptr.To(false))
	unset(&c.Authentication.Webhook.Enabled, ptr.To(true))
	unset(&c.Authentication.Webhook.CacheTTL, seconds(120))
	unset(&c.Authorization.Mode, kubeletv1beta1.KubeletAuthorizationModeWebhook)
	unset(&c.Authorization.Webhook.CacheAuthorizedTTL, seconds(300))
	unset(&c.Authorization.Webhook.CacheUnauthorizedTTL, seconds(30))
	unset(&c.HealthzPort, ptr.To[int32](10248))
	unset(&c.HealthzBindAddress, "127.0.0.1")
	unset(&c.EnableDebuggingHandlers, ptr.To(true))
	unset(&c.EnableSystemLogHandler, ptr.To(true))
	unset(&c.EnableSystemLogQuery, ptr.To(false))
	unset(&c.EnableProfilingHandler, ptr.To(true))
	unset(&c.EnableDebugFlagsHandler, ptr.To(true))
	unset(&c.StreamingConnectionIdleTimeout, seconds(4*3600))
	unset(&c.EventRecordQPS, ptr.To[int32](50))
	unset(&c.EventBurst, 100)
	unset(&c.ContentType, "application/vnd.kubernetes.protobuf")
	unset(&c.KubeAPIQPS, ptr.To[int32](50))
	unset(&c.KubeAPIBurst, 100)
}

func defaultNode(c *kubeletv1beta1.KubeletConfiguration) {
	// The report follows the update when only the update is set.
	unset(&c.NodeStatusReportFrequency, c.NodeStatusUpdateFrequency)
	unset(&c.NodeStatusReportFrequency, seconds(300))
	unset(&c.NodeStatusUpdateFrequency, seconds(10))
	unset(&c.NodeLeaseDurationSeconds, 40)
	unset(&c.NodeStatusMaxImages, ptr.To[int32](50))
	unset(&c.RegisterNode, ptr.To(true))
	unset(&c.OOMScoreAdj, ptr.To[int32](-999))
	unset(&c.MaxOpenFiles, 1000000)
	unset(&c.MakeIPTablesUtilChains, ptr.To(true))
	unset(&c.IPTablesMasqueradeBit, ptr.To[int32](14))
	unset(&c.IPTablesDropBit, ptr.To[int32](15))
	unset(&c.HairpinMode, kubeletv1beta1.PromiscuousBridge)
	unset(&c.EnableControllerAttachDetach, ptr.To(true))
	unset(&c.VolumePluginDir, "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/")
	unset(&c.VolumeStatsAggPeriod, seconds(60))
	unset(&c.LocalStorageCapacityIsolation, ptr.To(true))
	unset(&c.ContainerRuntimeEndpoint, "unix:///run/containerd/containerd.sock")
	unset(&c.RuntimeRequestTimeout, seconds(120))
	unset(&c.FailSwapOn, ptr.To(true))
	unset(&c.FailCgroupV1, ptr.To(true))
}

func defaultImages(c *kubeletv1beta1.KubeletConfiguration) {
	unset(&c.RegistryPullQPS, ptr.To[int32](5))
	unset(&c.RegistryBurst, 10)
	unset(&c.SerializeImagePulls, ptr.To(ptr.Deref(c.MaxParallelImagePulls, 0) < 2))
	unset(&c.ImagePullCredentialsVerificationPolicy, kubeletv1beta1.NeverVerifyPreloadedImages)
	unset(&c.ImageMinimumGCAge, seconds(120))
	unset(&c.ImageGCHighThresholdPercent, ptr.To[int32](85))
	unset(&c.ImageGCLowThresholdPercent, ptr.To[int32](80))
}

func defaultCgroups(c *kubeletv1beta1.KubeletConfiguration) {
	unset(&c.CgroupsPerQOS, ptr.To(true))
	unset(&c.CgroupDriver, "cgroupfs")
	unset(&c.CPUManagerPolicy, "none")
	unset(&c.CPUManagerReconcilePeriod, seconds(10))
	unset(&c.MemoryManagerPolicy, kubeletv1beta1.NoneMemoryManagerPolicy)
	unset(&c.TopologyManagerPolicy, kubeletv1beta1.NoneTopologyManagerPolicy)
	unset(&c.TopologyManagerScope, kubeletv1beta1.ContainerTopologyManagerScope)
	unset(&c.CPUCFSQuota, ptr.To(true))
	unset(&c.CPUCFSQuotaPeriod, &metav1.Duration{Duration: 100 * time.Millisecond})
	unset(&c.MemoryReservationPolicy, kubeletv1beta1.NoneMemoryReservationPolicy)
	if c.EnforceNodeAllocatable == nil {
		c.EnforceNodeAllocatable = []string{"pods"}
	}
}

func defaultEviction(c *kubeletv1beta1.KubeletConfiguration) {
	unset(&c.MergeDefaultEvictionSettings, ptr.To(false))
	unset(&c.EvictionPressureTransitionPeriod, seconds(300))
	standard := map[string]string{
		"memory.available":   "100Mi",
		"nodefs.available":   "10%",
		"nodefs.inodesFree":  "5%",
		"imagefs.available":  "15%",
		"imagefs.inodesFree": "5%",
	}
	switch {
	case c.EvictionHard == nil:
		c.EvictionHard = standard
	case *c.MergeDefaultEvictionSettings:
		for signal, value := range standard {
			if _, ok := c.EvictionHard[signal]; !ok {
				c.EvictionHard[signal] = value
			}
		}
	}
}

func defaultPods(c *kubeletv1beta1.KubeletConfiguration) {
	unset(&c.PodLogsDir, "/var/log/pods")
	unset(&c.SyncFrequency, seconds(60))
	unset(&c.FileCheckFrequency, seconds(20))
	unset(&c.HTTPCheckFrequency, seconds(20))
	unset(&c.MaxPods, 110)
	unset(&c.PodPidsLimit, ptr.To[int64](-1))
	unset(&c.ResolverConfig, ptr.To("/etc/resolv.conf"))
	unset(&c.ContainerLogMaxSize, "10Mi")
	unset(&c.ContainerLogMaxFiles, ptr.To[int32](5))
	unset(&c.ContainerLogMaxWorkers, ptr.To[int32](1))
	unset(&c.ContainerLogMonitorInterval, ptr.To(seconds(10)))
	unset(&c.ConfigMapAndSecretChangeDetectionStrategy,
		kubeletv1beta1.WatchChangeDetectionStrategy)
	unset(&c.SeccompDefault, ptr.To(false))
	unset(&c.CrashLoopBackOff.MaxContainerRestartPeriod, ptr.To(seconds(300)))
	unset(&c.UserNamespaces, &kubeletv1beta1.UserNamespaces{})
	unset(&c.UserNamespaces.IDsPerPod, ptr.To[int64](65536))
}

// unset stores the default if the field has its zero value.
func unset[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func seconds(n int) metav1.Duration {
	return metav1.Duration{Duration: time.Duration(n) * time.Second}
}
